"""Metadata of a recording in the Croissant format, which data set search and machine learning loaders read.

M. Akhtar et al., "Croissant: a metadata format for ML-ready datasets", NeurIPS 2024; specification 1.0 of MLCommons.
"""

import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

ENDINGS = {".csv": "text/csv", ".parquet": "application/x-parquet"}
COLUMNS = {  # columns of the written table: schema.org type, and description
    "recording": ("Text", "the job that was recorded"),
    "worker": ("Text", "the worker that took the time"),
    "step": ("Integer", "the step"),
    "seconds": ("Float", "the worker's time in that step, in {units}"),
}


def described(source: Mapping[str, str], units: str, file: str, content: bytes) -> dict[str, Any]:
    """Describe a file with a recording, and the origin of the recording.

    `source`, `units`: origin and units of the recording; `file`: name of the file; `content`: its bytes. Needs
    the extra `metadata`.

    >>> described({"name": "mine"}, "s", "mine.csv", b"")["recordSet"][0]["field"][3]["name"]
    'seconds'
    """
    from mlcroissant import Extract, Field, FileObject, Metadata, RecordSet, Source

    where, licence = source.get("where", ""), source.get("licence")
    found_text = ["recorded times of workers, by step", source.get("title", ""), where]
    fields = [
        Field(
            id=f"times/{column}",
            name=column,
            description=text.format(units=units),
            data_types=[f"https://schema.org/{kind}"],
            source=Source(file_object=file, extract=Extract(column=column)),
        )
        for column, (kind, text) in COLUMNS.items()
    ]
    written = FileObject(
        id=file,
        name=file,
        content_url=file,
        encoding_formats=[ENDINGS[PurePath(file).suffix]],
        sha256=hashlib.sha256(content).hexdigest(),
    )
    metadata = Metadata(
        name=source.get("name", "recording"),
        description="; ".join(found_text for found_text in found_text if found_text),
        license=[licence] if licence else None,
        distribution=[written],
        record_sets=[RecordSet(id="times", name="times", fields=fields)],
    )
    return {**metadata.to_json(), **({"isBasedOn": where} if where else {})}
