"""MaterialError ─┬─ UnsupportedMaterialError   no parser for this kind of file
                ├─ UndecodableTextError       no encoding fits the bytes
                └─ CourseFileError            a course folder's course.json is wrong

All are the fault of the file; the message names it and is for people.
"""

from __future__ import annotations


class MaterialError(Exception):
    """A file that cannot become a material."""


class UnsupportedMaterialError(MaterialError):
    """There is no parser for this kind of file."""


class UndecodableTextError(MaterialError):
    """The bytes are text in no encoding that could be found."""


class CourseFileError(MaterialError):
    """A course folder whose `course.json` is missing or wrong."""
