"""Writes docs/reference/ from the code: settings, environment, metrics, API. `make docs` runs it; a test checks it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from esd.cli.schema import SETTINGS
from esd.run.local_settings import NOT_TAKEN
from esd.services.runtime.environment import CONDITIONS, VARIABLES
from esd.services.runtime.metrics import REGISTRY
from esd.services.runtime.settings import NUMBER_OF_PROCESSORS, ServerSettings, explain

ROOT = Path(__file__).resolve().parent.parent
NOTICE = "<!-- Written by `make docs` from the code; do not edit. -->\n\n"


def pages() -> dict[Path, str]:
    """Returns the text of every page by its path below the repository."""
    return {
        Path("docs/reference/settings.md"): NOTICE + settings_page(),
        Path("docs/reference/environment.md"): NOTICE + environment_page(),
        Path("docs/reference/metrics.md"): NOTICE + metrics_page(),
        Path("docs/reference/api.md"): NOTICE + api_page(),
    }


def settings_page() -> str:
    """Returns the page of all settings of all services."""
    text = (
        "# Settings\n\n"
        "Each service reads the flags of `esd serve ps`, `dispatcher`, `worker` or `model`, below them\n"
        "environment variables, and below those the file that `ESD_CONFIG` or `--config` names (TOML, one section per\n"
        "service; keys are the part of the variable after the prefix, in lower case). All mistakes are reported at\n"
        "once, by the variable's name.\n\n"
        "A size is written `64MiB`, `2g` (both powers of 1,024, as of container engines), `1GB` (a power of 1,000) or\n"
        "as a number of bytes; a speed `50m`, `62.5k` or `5g` in bits per second. Options of `esd` and the file of\n"
        "`esd cluster` take the same.\n"
    )
    text += _of_a_local_run()
    for name, settings in SETTINGS.items():
        served = issubclass(settings, ServerSettings)
        columns = ("variable", "flag", "default", "meaning") if served else ("variable", "default", "meaning")
        text += f"\n## {name}: section `[{settings.section()}]`\n\n" + _row(columns) + "|---" * len(columns) + "|\n"
        for each in explain(settings):
            flag = f"`{each.flag}`, `--no-{each.field.replace('_', '-')}`" if each.switch else f"`{each.flag}`"
            cells = [f"`{each.variable}`", *([flag] if served else []), _default(each.default), each.meaning]
            text += _row(cells)
    return text


def environment_page() -> str:
    """Returns the page of the variables and conditions that count, and of their effects."""
    text = (
        "# Environment\n\n"
        "The part of the environment of commands and services that counts. A variable that is not listed has no\n"
        "effect of its own; the services of a local run inherit all variables of its command but settings of other\n"
        "services.\n"
    )
    for title, influences in (("Variables", VARIABLES), ("Conditions", CONDITIONS)):
        text += f"\n## {title}\n\n| {title.lower()} | effect | file |\n|---|---|---|\n"
        for each in influences:
            names = ", ".join(f"`{name}`" for name in each.names) if title == "Variables" else "; ".join(each.names)
            text += _row((names, each.effect, f"`{each.place}`" if each.place else ""))
    return text


def _of_a_local_run() -> str:
    """Returns the section on the settings of a local run, with a reason for each that it does not take."""
    text = (
        "\n## In a local run\n\n"
        "`esd train`, `esd demo` and `LocalCluster` start services with these variables and this file, too. An option\n"
        "of the run wins over a setting (`--shadows` over `ESD_DISPATCHER_SHADOW_MECHANISMS`), and what a local run\n"
        "cannot take is refused by name before anything starts, unless it says what the option says:\n\n"
    )
    for settings, fields in NOT_TAKEN.items():
        by_reason: dict[str, list[str]] = {}
        for field, reason in fields.items():
            by_reason.setdefault(reason, []).append(f"`{settings.variable(field)}`")
        text += "".join(f"- {', '.join(variables)}: {reason}.\n" for reason, variables in by_reason.items())
    return text + (
        "\nA port of metrics may be set for the one dispatcher, and for a service of which there are several only to\n"
        "`none` or 0. An `ESD_*` variable that nothing reads is named in a warning, with the nearest known name.\n"
    )


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _default(text: str | None) -> str:
    if text is None:
        return "required"
    if text == NUMBER_OF_PROCESSORS:
        return text
    return f"`{text}`" if text else "none"


def metrics_page() -> str:
    """Returns the page of all metrics, with their labels and meanings."""
    text = (
        "# Metrics\n\n"
        "Every service has a Prometheus page at its metrics port (`/metrics`). A service shows the metrics that it\n"
        "feeds. `worker` labels are worker slots, 0 to n-1.\n\n"
        "| metric | type | labels | meaning |\n|---|---|---|---|\n"
    )
    # The process collector of the client library has no name.
    metrics: list[Any] = [metric for metric in REGISTRY._collector_to_names if hasattr(metric, "_name")]  # noqa: SLF001
    for metric in sorted(metrics, key=lambda metric: metric._name):  # noqa: SLF001
        name = metric._name  # noqa: SLF001
        kind = type(metric).__name__.lower()
        suffix = "_total" if kind == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "none"  # noqa: SLF001
        text += f"| `{name}{suffix}` | {kind} | {labels} | {metric._documentation} |\n"  # noqa: SLF001
    return (
        text
        + "\n`process_*`: memory, processor time and open files of the service, by the Prometheus client library.\n"
    )


def api_page() -> str:
    """Returns the page of all RPCs and messages, with the comments of the .proto files."""
    text = (
        "# API\n\n"
        "Package `esd.v1`, as in `protos/`. All services also have the standard gRPC health and reflection services,\n"
        "so `grpcurl -plaintext HOST:PORT list` works without the files. Arrays are little-endian `bytes`; the\n"
        "comment of each field gives dtype and shape.\n"
    )
    for file in _descriptors():
        comments = {tuple(location.path): _comment(location) for location in file.source_code_info.location}
        for s, service in enumerate(file.service):
            text += f"\n## {service.name}\n\n"
            for r, rpc in enumerate(service.method):
                request, response = (kind.rpartition(".")[2] for kind in (rpc.input_type, rpc.output_type))
                request = f"stream {request}" if rpc.client_streaming else request
                response = f"stream {response}" if rpc.server_streaming else response
                text += f"- **{rpc.name}**(`{request}`) returns `{response}`. {comments[6, s, 2, r]}\n"
        text += f"\n### Messages of `{file.name.removeprefix('esd/')}`\n"
        for m, message in enumerate(file.message_type):
            text += f"\n**{message.name}** {comments.get((4, m), '')}\n\n"
            text += "".join(
                f"- `{_type(field)} {field.name} = {field.number}` {comments.get((4, m, 2, f), '')}\n"
                for f, field in enumerate(message.field)
            )
    return text


def _descriptors() -> Iterator[descriptor_pb2.FileDescriptorProto]:
    """Parses the .proto files, comments included."""
    files = sorted(f"esd/protos/{path.name}" for path in (ROOT / "protos").glob("*.proto"))
    with tempfile.NamedTemporaryFile() as output:
        arguments = ["protoc", f"-I{ROOT}", f"--descriptor_set_out={output.name}", "--include_source_info", *files]
        if protoc.main(arguments) != 0:
            raise RuntimeError("protoc failed")
        yield from descriptor_pb2.FileDescriptorSet.FromString(Path(output.name).read_bytes()).file


def _comment(location: descriptor_pb2.SourceCodeInfo.Location) -> str:
    return " ".join((location.leading_comments + " " + location.trailing_comments).split())


def _type(field: descriptor_pb2.FieldDescriptorProto) -> str:
    name = field.type_name.rpartition(".")[2] or descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    return f"repeated {name}" if field.label == field.LABEL_REPEATED else name


def main() -> None:
    """Writes every page."""
    for path, text in pages().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
