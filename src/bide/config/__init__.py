"""What users declare, read and checked: every mistake at once, with its place and one next step.

``read_file`` reads ``bide.toml``; ``compile_declarations`` takes that, or the same tables recorded by
:mod:`bide.package`, to :class:`bide.core.declaration.Declarations`.
"""

from bide.config.compile import compile_declarations
from bide.config.file import read_file
from bide.config.references import BadReference, imported, resolve_function
from bide.config.report import Compiled

__all__ = ["BadReference", "Compiled", "compile_declarations", "imported", "read_file", "resolve_function"]
