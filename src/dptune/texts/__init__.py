"""Texts: read from files or the hub, and turned into rows of whole numbers of one length."""

from dptune.texts.encoder import Encoder as Encoder
from dptune.texts.reading import read as read
from dptune.texts.texts import Texts as Texts
