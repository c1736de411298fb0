"""Columns of tables by name: what each is, and how a row of them becomes numbers."""

from dptune.columns.coding import Coded as Coded
from dptune.columns.coding import Coder as Coder
from dptune.columns.coding import code as code
from dptune.columns.encoding import Encoding as Encoding
from dptune.columns.frames import as_table as as_table
from dptune.columns.kinds import Boolean as Boolean
from dptune.columns.kinds import Category as Category
from dptune.columns.kinds import Column as Column
from dptune.columns.kinds import Date as Date
from dptune.columns.kinds import Drop as Drop
from dptune.columns.kinds import Number as Number
from dptune.columns.schema import guess as guess
from dptune.columns.spec import Columns as Columns
from dptune.columns.spec import LabelFacts as LabelFacts
from dptune.columns.stretch import Stretch as Stretch
