"""Metadata of a recording as Croissant, which data set search and loaders of machine learning read.

M. Akhtar et al., "Croissant: a metadata format for ML-ready datasets", NeurIPS 2024; specification 1.0 of MLCommons.
"""

import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

_OWN = """
    citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset
    jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source subField
    transform
"""
CONTEXT: dict[str, Any] = {  # as the specification has it
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{word: f"cr:{word}" for word in _OWN.split()},
}
ENDINGS = {".csv": "text/csv", ".parquet": "application/x-parquet"}
COLUMNS = {  # of the table that is written -> type, what it says
    "recording": ("sc:Text", "the job that was recorded"),
    "worker": ("sc:Text", "who took the time"),
    "step": ("sc:Integer", "the step"),
    "seconds": ("sc:Float", "what the worker took in that step, in {units}"),
}


def described(source: Mapping[str, str], units: str, file: str, content: bytes) -> dict[str, Any]:
    """Describe a file that holds a recording, and where that is from.

    `source`: of the recording; `units`: of its times; `file`: its name; `content`: what is in it.

    >>> described({"name": "mine"}, "s", "mine.csv", b"")["recordSet"][0]["field"][3]["name"]
    'seconds'
    """
    name = source.get("name", "recording")
    told = [source.get("title", ""), source.get("where", "")]
    words = "; ".join(["recorded times of workers, by step", *(word for word in told if word)])
    given = {"license": source.get("licence"), "isBasedOn": source.get("where")}
    written = {"@type": "cr:FileObject", **dict.fromkeys(("@id", "name", "contentUrl"), file)}
    written |= {
        "encodingFormat": ENDINGS[PurePath(file).suffix],
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    fields = [_field(file, column, units) for column in COLUMNS]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": words,
        **{key: value for key, value in given.items() if value},
        "distribution": [written],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "times", "name": "times", "field": fields}],
    }


def _field(file: str, column: str, units: str) -> dict[str, Any]:
    kind, words = COLUMNS[column]
    said = {"name": column, "description": words.format(units=units), "dataType": kind}
    source = {"fileObject": {"@id": file}, "extract": {"column": column}}
    return {"@type": "cr:Field", "@id": f"times/{column}", **said, "source": source}
