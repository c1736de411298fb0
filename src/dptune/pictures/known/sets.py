"""All known data sets: their usual files, their place on the hub, how to get them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dptune.pictures.hugging_face import OnHub
from dptune.pictures.known import cifar, class_names, digits, imagenet, stl10, tables
from dptune.pictures.pictures import PictureSet

Reader = Callable[[Path, str], PictureSet | None]  # of folder and variant; None if it is missing


@dataclass(frozen=True)
class KnownSet:
    """A data set with a name. `folders` are the usual places of its files, under the root folder or
    one with the name of the set; "." is that folder itself."""

    name: str
    read: Reader
    folders: tuple[str, ...]
    files: str  # the supported layouts, in words
    source: str  # the address of its authors
    licence: str
    # By variant, for files that do not name them.
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variants: str = ""  # the values of VARIANT in NAME:VARIANT, in words
    variant: str = ""  # the default variant
    other_names: tuple[str, ...] = ()
    hub: OnHub | None = None


_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
_NO_LICENCE = "none stated; research use, cite the report"
_ROBUSTNESS = "CC BY 4.0"

KNOWN = (
    KnownSet(
        "cifar10",
        cifar.cifar10,
        ("cifar-10-batches-py", "cifar-10-batches-bin", "."),
        "cifar-10-batches-py (pickles) or cifar-10-batches-bin (binary)",
        _CIFAR,
        _NO_LICENCE,
        {"": class_names.CIFAR10},
        hub=OnHub("uoft-cs/cifar10", label="label", classes=class_names.CIFAR10),
    ),
    KnownSet(
        "cifar100",
        cifar.cifar100,
        ("cifar-100-python", "cifar-100-binary", "."),
        "cifar-100-python (pickles) or cifar-100-binary (binary); by fine labels",
        _CIFAR,
        _NO_LICENCE,
        {"": class_names.CIFAR100},
        hub=OnHub("uoft-cs/cifar100", label="fine_label", classes=class_names.CIFAR100),
    ),
    KnownSet(
        "mnist",
        digits.mnist,
        ("MNIST/raw", "raw"),
        "train-images-idx3-ubyte and its kin, packed (.gz) or not, in mnist or MNIST/raw",
        "http://yann.lecun.com/exdb/mnist/",
        "usually given as CC BY-SA 3.0",
        {"": class_names.DIGITS},
        hub=OnHub("ylecun/mnist"),
    ),
    KnownSet(
        "fashion_mnist",
        digits.fashion_mnist,
        ("FashionMNIST/raw", "raw", "data/fashion"),
        "train-images-idx3-ubyte and its kin, packed (.gz) or not, in fashion_mnist or "
        "FashionMNIST/raw",
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
        {"": class_names.FASHION},
        hub=OnHub("zalando-datasets/fashion_mnist", classes=class_names.FASHION),
    ),
    KnownSet(
        "emnist",
        digits.emnist,
        ("EMNIST/raw", "raw", "gzip", "."),
        "emnist-VARIANT-train-images-idx3-ubyte and its kin, packed (.gz) or not, in emnist, gzip "
        "or EMNIST/raw",
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        "derived from NIST Special Database 19, a work of the US government",
        class_names.EMNIST,
        variants=", ".join(class_names.EMNIST),
        variant="byclass",
    ),
    KnownSet(
        "svhn",
        digits.svhn,
        (".",),
        "train_32x32.mat and test_32x32.mat (cropped digits), read whole",
        "http://ufldl.stanford.edu/housenumbers/",
        "non-commercial use",
        {"": class_names.DIGITS},
        hub=OnHub("ufldl-stanford/svhn", config="cropped_digits"),
    ),
    KnownSet(
        "stl10",
        stl10.stl10,
        ("stl10_binary", "."),
        "stl10_binary (train_X.bin, train_y.bin and the same for test)",
        "https://cs.stanford.edu/~acoates/stl10/",
        "pictures from ImageNet, under its terms",
        {"": class_names.STL10},
        hub=OnHub("tanganke/stl10"),
    ),
    KnownSet(
        "imagenet",
        imagenet.imagenet,
        ("ILSVRC/Data/CLS-LOC", "ILSVRC2012", "."),
        "train/nXXXXXXXX/*.JPEG with val/nXXXXXXXX/*.JPEG, or with a flat val and "
        "LOC_val_solution.csv or ILSVRC2012_devkit_t12",
        "https://image-net.org/download.php",
        "non-commercial research, on request",
        other_names=("imagenet-1k", "ILSVRC2012"),
        hub=OnHub("ILSVRC/imagenet-1k", splits={"test": "validation"}),
    ),
    KnownSet(
        "waterbirds",
        tables.waterbirds,
        ("waterbird_complete95_forest2water2", "waterbirds_v1.0", "."),
        "waterbird_complete95_forest2water2 or waterbirds_v1.0 (metadata.csv and the pictures)",
        "https://github.com/kohpangwei/group_DRO",
        "non-commercial research and education",
        {"": class_names.BIRDS},
        hub=OnHub("grodino/waterbirds", label="label", group="place", classes=class_names.BIRDS),
    ),
    KnownSet(
        "fmow",
        tables.fmow,
        ("fmow_v1.1", "."),
        "fmow_v1.1 (rgb_metadata.csv, country_code_mapping.csv, images/rgb_img_N.png)",
        "https://wilds.stanford.edu/get_started/",
        "Functional Map of the World Challenge Public License",
        {"": class_names.FMOW},
    ),
    KnownSet(
        "camelyon17",
        tables.camelyon17,
        ("camelyon17_v1.0", "."),
        "camelyon17_v1.0 (metadata.csv, patches/)",
        "https://wilds.stanford.edu/get_started/",
        "CC0",
        {"": class_names.TISSUE},
    ),
    KnownSet(
        "cifar10.1",
        cifar.cifar101,
        ("CIFAR-10.1/datasets", "datasets", "."),
        "cifar10.1_v6_data.npy and cifar10.1_v6_labels.npy or of v4",
        "https://github.com/modestyachts/CIFAR-10.1",
        "none stated for the pictures, which are from TinyImages",
        {"v4": class_names.CIFAR10, "v6": class_names.CIFAR10},
        variants="v4, v6",
        variant="v6",
    ),
    KnownSet(
        "cifar10-c",
        cifar.cifar10_c,
        ("CIFAR-10-C",),
        "CIFAR-10-C (CORRUPTION.npy and labels.npy)",
        "https://zenodo.org/records/2535967",
        _ROBUSTNESS,
        variants="the name of a corruption",
    ),
    KnownSet(
        "cifar100-c",
        cifar.cifar100_c,
        ("CIFAR-100-C",),
        "CIFAR-100-C (CORRUPTION.npy and labels.npy)",
        "https://zenodo.org/records/3555552",
        _ROBUSTNESS,
        variants="the name of a corruption",
    ),
)
