"""Every error that a table, or what is declared of it, can cause: what it holds, and all that is
said. The documentation lists them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOOD_TABLE = """\
age,job,seen,smoker,ill
34,nurse,2024-03-01,yes,no
51,clerk,2024-03-02,no,yes
47,nurse,2024-03-05,no,no
28,other,2024-04-01,yes,yes
"""
GOOD_COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "range": [18, 90]},
    "job": {"kind": "category", "values": ["nurse", "clerk"]},
    "seen": {"kind": "date", "range": ["2024-01-01", "2024-12-31"]},
    "smoker": "boolean",
    "ill": {"kind": "category", "values": ["yes", "no"]},
}
DECLARE_IT = (
    "Declare this column, too, in [columns] (columns= in Python): ill = { kind = "
    '"number", range = [LOW, HIGH] } to predict values, or ill = { kind = "category", values = '
    '["a", "b"] } with all its classes. If it is a key, name another column with --label (label= '
    "in Python)."
)


@dataclass(frozen=True)
class TableError:
    """What is wrong, in words; the text of a file, and what is declared; the message."""

    name: str
    message: str
    table: str = GOOD_TABLE
    columns: dict[str, Any] | None = field(default_factory=lambda: GOOD_COLUMNS)
    label: str = "ill"
    file: str = "patients.csv"
    encoding: str = "utf-8"

    def write(self, folder: Path) -> str:
        """The file's name there."""
        (folder / self.file).write_text(self.table, encoding=self.encoding)
        return self.file


def declared(**columns: Any) -> dict[str, Any]:
    """The good columns, some of them declared otherwise; None for one that is not."""
    found = GOOD_COLUMNS | columns
    return {name: column for name, column in found.items() if column is not None}


def replaced(*pairs: tuple[str, str]) -> str:
    """The good table, with other texts in it."""
    table = GOOD_TABLE
    for old, new in pairs:
        assert old in table
        table = table.replace(old, new, 1)
    return table


TABLE_ERRORS = (
    TableError(
        "labels that are all the same, and nothing is declared",
        (
            "all rows have the same label, so there is nothing to learn; if there are other "
            "classes, declare all of them with --classes (classes= in Python, classes in [data] "
            "of a --config file)."
        ),
        table="age,ill\n34,no\n35,no\n",
        columns=None,
    ),
    TableError(
        "labels that are almost all different, and nothing is declared",
        (
            "the labels are almost all different, so as classes they would be released one "
            "by one, and there is little to learn. If they are values, say task='values' and "
            "give a target_range (in [data] of a --config file, or in Python); if they are "
            "classes, declare all of them with --classes (classes= in Python, classes in [data] "
            "of a --config file)."
        ),
        table="age,ill\n" + "".join(f"{n % 50},{n}\n" for n in range(100)),
        columns=None,
    ),
    TableError(
        "labels that are no whole numbers, and nothing is declared",
        (
            "the labels must name classes, and found numbers that are not whole; to predict "
            "values, say task='values' and give a target_range (in [data] of a --config file, or "
            "in Python)."
        ),
        table="age,ill\n34,0.5\n35,1.5\n",
        columns=None,
    ),
    TableError(
        "a label that is missing, and nothing is declared",
        (
            "the labels are missing in 1 row (2, counted from 1): empty, NaN or infinite. "
            "Correct or remove these rows first."
        ),
        table="age,ill\n34,no\n35,\n36,yes\n",
        columns=None,
    ),
    TableError(
        "a line that is cut off, and nothing is declared",
        (
            "'patients.csv' cannot be read: Row #3: Expected 3 columns, got 2. It may be "
            "damaged, or of another kind than its name says; write it again."
        ),
        table="age,size,ill\n34,1,no\n35,yes\n",
        columns=None,
    ),
    TableError(
        "names of columns and no rows, and nothing is declared",
        "'patients.csv' holds no rows, only the columns age, ill.",
        table="age,ill\n",
        columns=None,
    ),
    TableError(
        "numbers beyond all bounds, and nothing is declared",
        (
            "'patients.csv' has columns that must be declared. Begin with dptune columns "
            "patients.csv -o columns.toml, fill that in, and give it with --columns "
            "columns.toml (columns= in Python):\n"
            "  age: holds numbers that are infinite or too large."
        ),
        table="age,ill\n1e999,no\n35,yes\n",
        columns=None,
    ),
    TableError(
        "text columns, and nothing is declared",
        (
            "'patients.csv' has columns that must be declared. Begin with dptune columns "
            "patients.csv -o columns.toml, fill that in, and give it with --columns "
            "columns.toml (columns= in Python):\n"
            "  job, smoker: must be numbers, or lists of numbers; found string.\n"
            "  seen: must be numbers, or lists of numbers; found date32[day]."
        ),
        columns=None,
    ),
    TableError(
        "a gap, and nothing is declared",
        (
            "'patients.csv' has columns that must be declared. Begin with dptune columns "
            "patients.csv -o columns.toml, fill that in, and give it with --columns "
            "columns.toml (columns= in Python):\n"
            "  age: has missing values."
        ),
        table="age,ill\n34,no\n,yes\n",
        columns=None,
    ),
    TableError(
        "a text among numbers",
        (
            "'patients.csv' has columns that must be declared. Begin with dptune columns "
            "patients.csv -o columns.toml, fill that in, and give it with --columns "
            "columns.toml (columns= in Python):\n"
            "  age: must be numbers, or lists of numbers; found string (the first in row 2)."
        ),
        table="age,ill\n34,no\nn.a.,yes\n35,no\n",
        columns=None,
    ),
    TableError(
        "there is no such column of labels",
        (
            "'patients.csv' has no column of labels 'sick'; found the columns age, job, "
            "seen, smoker, ill. If these are values of a row, the file lacks a line of names. Say "
            "which it is with --label (label= in Python)."
        ),
        label="sick",
    ),
    TableError(
        "there is no such column of labels, and nothing is declared",
        (
            "'patients.csv' has no column of labels 'sick'; found the columns age, job, "
            "seen, smoker, ill. If these are values of a row, the file lacks a line of names. Say "
            "which it is with --label (label= in Python)."
        ),
        label="sick",
        columns=None,
    ),
    TableError(
        "a column that is not declared, and one that is not there",
        (
            "'patients.csv' does not fit the declared columns:\n"
            "  income: is declared but missing; add it, or remove its declaration.\n"
            '  job: is not declared; declare it, at least as "drop".'
        ),
        columns=declared(job=None, income="number"),
    ),
    TableError(
        "gaps in columns that do not say what stands for them",
        (
            "'patients.csv' does not fit the declared columns:\n"
            "  age, smoker: each has missing values; declare fill (the value to use instead), or "
            "indicator = true (one more feature that marks them)."
        ),
        table=replaced(("34,", ","), ("no,yes", "NA,yes")),
    ),
    TableError(
        "text in a column of numbers, of dates, of truths",
        (
            "'patients.csv' does not fit the declared columns:\n"
            '  age: holds texts that are not numbers (write 1234.5, without "," '
            'or a unit); change them, or declare the column as a "category".\n'
            "  seen: holds texts that are not dates (write 2025-12-31 or "
            '2025-12-31T18:30:00); change them, or declare the column as a "category".\n'
            "  smoker: holds values other than true and false (yes and no, t and f, y and n, 1 and "
            '0); change them, or declare the column as a "category".'
        ),
        table=replaced(("34", "thirty"), ("2024-03-02", "March 2"), ("yes,no", "often,no")),
    ),
    TableError(
        "a number as people write it",
        (
            "'patients.csv' does not fit the declared columns:\n"
            '  age: holds texts that are not numbers (write 1234.5, without "," '
            'or a unit); change them, or declare the column as a "category".'
        ),
        table=replaced(("34", '"1,234"')),
    ),
    TableError(
        "a label that is not among its values",
        (
            "the column 'ill' of 'patients.csv' holds labels that are not among its declared "
            "values; declare all of them in [columns], or leave those rows out."
        ),
        columns=declared(ill={"kind": "category", "values": ["yes", "maybe"]}),
    ),
    TableError(
        "a label that is missing",
        ("the column 'ill' of 'patients.csv' has missing values; remove those rows first."),
        table=replaced(("yes,no\n", "yes,\n")),
    ),
    TableError(
        "a label that is a number without a range",
        (
            "age: a label that is a number needs its range, the lowest and the highest value "
            "to learn, from general knowledge and not from the rows; if it "
            'numbers classes, declare it as a "category" with all its values.'
        ),
        columns=declared(ill="drop", age="number"),
        label="age",
    ),
    TableError(
        "a label of a kind that cannot be learned",
        (
            "seen: a label must be a category with all its values, a boolean, or a number "
            "with a range; it is declared as date."
        ),
        columns=declared(ill="drop"),
        label="seen",
    ),
    TableError(
        "a label whose values are paid for",
        (
            "ill: a label must be a category with all its values, a boolean, or a number "
            "with a range; it is declared as category with privately estimated values."
        ),
        columns=declared(ill={"kind": "category", "values": "paid"}),
    ),
    TableError(
        "a range beyond what rows can hold",
        (
            "the declared columns need a change:\n"
            "  age: range must be [low, high] in numbers from -3.4e+38 to 3.4e+38, or "
            '"paid"; got -1e+308.'
        ),
        columns=declared(age={"kind": "number", "range": [-1e308, 1e308]}),
    ),
    TableError(
        "a label that is dropped",
        (
            "ill: a label must be a category with all its values, a boolean, or a number "
            "with a range; it is declared as dropped."
        ),
        columns=declared(ill="drop"),
    ),
    TableError(
        "labels that are all the same, and not declared",
        (f"ill: all rows have the same label, so there is nothing to learn. {DECLARE_IT}"),
        table="age,ill\n34,no\n35,no\n",
        columns={"age": "number"},
    ),
    TableError(
        "labels that are almost all different, and not declared",
        (
            "ill: the labels are almost all different, so as classes they would be released one "
            f"by one, and there is little to learn. {DECLARE_IT}"
        ),
        table="age,ill\n" + "".join(f"{n % 50},{n}\n" for n in range(100)),
        columns={"age": "number"},
    ),
    TableError(
        "labels that are no whole numbers, and not declared",
        (f"ill: the labels are numbers that are not whole, so they name no classes. {DECLARE_IT}"),
        table="age,ill\n34,0.5\n35,1.5\n",
        columns={"age": "number"},
    ),
    TableError(
        "a column without a name",
        (
            "the first column of 'patients.csv' has no name. Name it, or leave it out; if it is "
            "the index of a pandas frame, use to_csv(index=False)."
        ),
        table=replaced(("age,", ",")),
    ),
    TableError(
        "a column without a name, and nothing is declared",
        (
            "the first column of 'patients.csv' has no name. Name it, or leave it out; if it is "
            "the index of a pandas frame, use to_csv(index=False)."
        ),
        table=",age,ill\n0,34,no\n1,35,yes\n",
        columns=None,
    ),
    TableError(
        "a later column without a name",
        ("column 2 of 'patients.csv' has no name; name it, or leave it out."),
        table=replaced(("job,", ",")),
    ),
    TableError(
        "two columns of one name",
        ("'patients.csv' has several columns called age; rename them."),
        table=replaced(("job", "age")),
    ),
    TableError(
        "a first line of data",
        (
            "the first line of 'patients.csv' must name the columns, and looks like data: it "
            "has numbers. Add a line with names; a name cannot be a number."
        ),
        table="34,nurse,yes\n51,clerk,no\n",
    ),
    TableError(
        "semicolons instead of commas",
        (
            "the columns of 'patients.csv' must be separated by commas; its first line has "
            "none, but semicolons. Save it again with commas (and a point in numbers)."
        ),
        table=GOOD_TABLE.replace(",", ";"),
    ),
    TableError(
        "bars instead of commas",
        (
            "the columns of 'patients.csv' must be separated by commas; its first line has "
            'none, but signs "|". Save it again with commas (and a point in numbers).'
        ),
        table=GOOD_TABLE.replace(",", "|"),
    ),
    TableError(
        "tabs, and a name that says so",
        (
            "the columns of 'patients.tsv' are separated by tabs, as its name says; save it with "
            "commas, and .csv at the end of its name."
        ),
        table=GOOD_TABLE.replace(",", "\t"),
        file="patients.tsv",
    ),
    TableError(
        "a first line of texts that are data",
        (
            "'patients.csv' has no column of labels 'ill'; found the columns nurse, yes. If these "
            "are values of a row, the file lacks a line of names. Say which it is with --label "
            "(label= in Python)."
        ),
        table="nurse,yes\nclerk,no\n",
    ),
    TableError(
        "a line that is cut off",
        (
            "'patients.csv' cannot be read: Row #6: Expected 5 columns, got 2. It may be "
            "damaged, or of another kind than its name says; write it again."
        ),
        table=GOOD_TABLE + "34,nurse\n",
    ),
    TableError(
        "names of columns and no rows",
        ("'patients.csv' holds no rows, only the names of columns."),
        table="age,job,seen,smoker,ill\n",
    ),
    TableError(
        "a file without a byte",
        ("the file 'patients.csv' is empty; give one with rows."),
        table="",
    ),
    TableError(
        "text that is not UTF-8",
        ("the text in 'patients.csv' is not UTF-8, so it cannot be read; save the file as UTF-8."),
        table=replaced(("clerk", "Bürokraft")),
        encoding="latin-1",
    ),
    TableError(
        "a file of another kind than its name says",
        (
            "'patients.parquet' cannot be read: ArrowInvalid. It may be damaged, or of "
            "another kind than its name says; write it again."
        ),
        file="patients.parquet",
    ),
    TableError(
        "a file whose name says no kind",
        (
            "'patients.txt' does not end in one of .npz, .npy, .csv, .csv.gz, .parquet; "
            "convert it to one of these, or rename it if it is one."
        ),
        file="patients.txt",
        columns=None,
    ),
    TableError(
        "a spreadsheet",
        (
            "'patients.xlsx' is a spreadsheet, which dptune does not read: it may have several "
            'sheets, and formulas instead of values. Save the sheet as "CSV UTF-8" and give that '
            "file."
        ),
        file="patients.xlsx",
    ),
    TableError(
        "columns declared of a file that names none",
        (
            "columns are declared by name, and those of 'patients.npy' have none: give a "
            ".csv, .csv.gz or .parquet file, a folder of .parquet files or one that "
            "save_to_disk wrote."
        ),
        file="patients.npy",
    ),
    TableError(
        "numbers beyond all bounds in a column without a range",
        (
            "'patients.csv' does not fit the declared columns:\n"
            "  age: holds numbers that are infinite or too large; clip them by "
            'declaring a range or range = "paid".'
        ),
        table=replaced(("34", "1e300")),
        columns=declared(age="number"),
    ),
    TableError(
        "only the label is left",
        ("all columns are dropped; keep at least one of them."),
        table="ill\nyes\nno\n",
        columns={"ill": GOOD_COLUMNS["ill"]},
    ),
    TableError(
        "a kind that there is not",
        (
            "the declared columns need a change:\n"
            "  job: kind must be one of number, category, date, boolean, drop; got 'text'."
        ),
        columns=declared(job="text"),
    ),
    TableError(
        "a setting that a kind does not have",
        (
            "the declared columns need a change:\n"
            "  age: number has no key 'rnage'; its keys are kind, range, fill, indicator."
        ),
        columns=declared(age={"kind": "number", "rnage": [0, 1]}),
    ),
    TableError(
        "ranges from high to low",
        (
            "the declared columns need a change:\n"
            "  age: the low end of a range must be below the high end; got (90, 18).\n"
            "  seen: the first date of a range must be before the last; got ('2024-12-31', "
            "'2024-01-01')."
        ),
        columns=declared(
            age={"kind": "number", "range": [90, 18]},
            seen={"kind": "date", "range": ["2024-12-31", "2024-01-01"]},
        ),
    ),
    TableError(
        "a fill outside of the range",
        ("the declared columns need a change:\n  age: fill must lie in the range; got 0."),
        columns=declared(age={"kind": "number", "range": [18, 90], "fill": 0}),
    ),
    TableError(
        "a range of width zero",
        (
            "the declared columns need a change:\n"
            "  age: the low end of a range must be below the high end; got (18, 18)."
        ),
        columns=declared(age={"kind": "number", "range": [18, 18]}),
    ),
    TableError(
        "a date without a range",
        (
            "the declared columns need a change:\n"
            '  seen: a date needs a range from public knowledge, such as range = ["2010-01-01", '
            '"2025-12-31"].'
        ),
        columns=declared(seen="date"),
    ),
    TableError(
        "a date whose range is not filled in",
        (
            "the declared columns need a change:\n"
            "  seen: both ends of range must be dates such as 2025-12-31; got 'FIRST'."
        ),
        columns=declared(seen={"kind": "date", "range": ["FIRST", "LAST"]}),
    ),
    TableError(
        "a category without values",
        (
            "the declared columns need a change:\n"
            '  job: a category needs either values (a list of names, or "paid") or buckets '
            "(a number)."
        ),
        columns=declared(job="category"),
    ),
    TableError(
        "a value that is declared twice",
        (
            "the declared columns need a change:\n"
            "  job: values must be all different; got 'a' twice."
        ),
        columns=declared(job={"kind": "category", "values": ["a", "a"]}),
    ),
    TableError(
        "everything is dropped",
        ("all columns are dropped; keep at least one of them."),
        columns=dict.fromkeys(GOOD_COLUMNS, "drop") | {"ill": "boolean"},
    ),
    TableError(
        "several things at once, each with its column",
        (
            "'patients.csv' does not fit the declared columns:\n"
            "  weight: is declared but missing; add it, or remove its declaration.\n"
            '  job: is not declared; declare it, at least as "drop".\n'
            "  age, smoker: each holds texts that are not numbers (write 1234.5, "
            'without "," or a unit); change them, or declare the column as a "category".'
        ),
        table=replaced(("34", "thirty"), ("51", "")),
        columns=declared(job=None, smoker="number", weight="number"),
    ),
)
