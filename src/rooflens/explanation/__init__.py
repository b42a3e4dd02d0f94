"""The formula of an operation with its numbers filled in, as with pen and paper."""

from rooflens.explanation.chapters import Chapter, Explained
from rooflens.explanation.explanation import Explanation
