"""The part of the environment that counts: each variable and condition, its effect, and the file that has it.

docs/reference/environment.md shows the table, and each entry has a test in tests/unit/runtime/test_environment.py or
tests/integration/cli/test_environments.py. A variable that is not listed has no effect of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

_OF_SOURCES = (
    "ESD_SOURCE_CA_FILE",
    "ESD_SOURCE_CERTIFICATE_FILE",
    "ESD_SOURCE_KEY_FILE",
    "ESD_SOURCE_PASSWORD_FILE",
)
# Variables that begin with ESD_ and are no setting of a service.
OWN_NAMES = ("ESD_CONFIG", "ESD_REPLICA", *_OF_SOURCES, "ESD_VERSION")


@dataclass(frozen=True, slots=True)
class Influence:
    """A variable, or several of one effect, or a condition of the process or the machine.

    Attributes:
        names: the variables, or the condition in words.
        effect: the effect, in whole sentences.
        place: the file of the repository that has the effect; empty if Python or a library has it.
    """

    names: tuple[str, ...]
    effect: str
    place: str = ""


VARIABLES = (
    Influence(
        ("ESD_PS_*", "ESD_DISPATCHER_*", "ESD_WORKER_*"),
        "Settings of services, of a local run's, too ([settings.md](settings.md)).",
        "esd/run/local_settings.py",
    ),
    Influence(
        ("ESD_MODEL_*",),
        "Settings of a served model ([settings.md](settings.md)).",
        "esd/serving/settings.py",
    ),
    Influence(
        ("ESD_CLIENT_*",),
        "Certificates and token of the `esd` command towards services that run already ([settings.md](settings.md)).",
        "services/runtime/security.py",
    ),
    Influence(
        ("ESD_CONFIG",),
        "File of the settings of services and command, below their variables.",
        "services/runtime/settings.py",
    ),
    Influence(
        ("ESD_REPLICA",),
        "Number of a worker among the replicas of its container, for `esd serve worker --links`.",
        "esd/cluster/replica.py",
    ),
    Influence(
        ("ESD_SOURCE_PASSWORD_FILE",),
        "File of the password with which a log of samples is read; the user stands in its address: `--data "
        "redis+stream://USER@HOST:PORT/KEY`.",
        "esd/data/logs/credentials.py",
    ),
    Influence(
        ("ESD_SOURCE_CA_FILE",),
        "PEM file of the authorities by which the server of a log is checked, in place of the system's; for "
        "`rediss+stream://`, `kafka+tls://` and `nats+tls://`.",
        "esd/data/logs/credentials.py",
    ),
    Influence(
        ("ESD_SOURCE_CERTIFICATE_FILE", "ESD_SOURCE_KEY_FILE"),
        "PEM files of the certificate, and of its key, that the reader of a log shows to its server.",
        "esd/data/logs/credentials.py",
    ),
    Influence(("ESD_VERSION",), "Tag of the images that `docker compose` runs.", "docker-compose.yml"),
    Influence(
        ("http_proxy", "https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"),
        "Calls to other machines go through the proxy unless the exceptions list them, and their errors name it. "
        "Calls to this machine never do.",
        "services/runtime/proxies.py",
    ),
    Influence(
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        "Address of the store of `s3://` that is not Amazon's, for data and for checkpoints; one that begins with "
        "`http://` is asked without encryption.",
        "esd/data/remote.py",
    ),
    Influence(
        ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "Region of the buckets of data; without it each bucket is asked for its region. All other variables of Amazon, "
        "Google and Azure, such as `AWS_ACCESS_KEY_ID`, have the effects that their libraries give them.",
        "esd/data/remote.py",
    ),
    Influence(
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        "Services export traces of iterations to this collector; without it they have none "
        "([monitoring.md](../monitoring.md#traces)).",
        "services/runtime/tracing.py",
    ),
    Influence(
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTEL_SDK_DISABLED",
            "OTEL_TRACES_EXPORTER",
        ),
        "Any protocol but `http/protobuf`, `true`, and any exporter but `otlp` keep traces off. All other variables of "
        "OpenTelemetry, such as `OTEL_TRACES_SAMPLER`, have the effects that its SDK gives them.",
        "services/runtime/tracing.py",
    ),
    Influence(
        ("XDG_CACHE_HOME", "HOME"),
        "Answers about data that take long to find are kept in `esd` below the first, or below `.cache` of the second. "
        "Where nothing can be written, one warning names the folder, and the data are read again each time.",
        "esd/data/memory.py",
    ),
    Influence(
        ("TMPDIR",),
        "Without `--out`, logs of a local run are in a new folder there. One that is absent or read-only is passed "
        "over for `/tmp`, `/var/tmp` and the working directory. Its path may have any length: there are no sockets in "
        "it.",
        "esd/run/train.py",
    ),
    Influence(
        ("LANG", "LC_ALL", "LC_NUMERIC", "PYTHONUTF8"),
        "None. Files are UTF-8, numbers have a point, and messages are English everywhere.",
    ),
    Influence(
        ("PYTHONIOENCODING",),
        "Encoding of what the command prints. A character that it lacks is printed as an escape sequence.",
        "esd/cli/console.py",
    ),
    Influence(
        ("PYTHONPATH",),
        "Folders in which models, readers and losses of one's own are found, in a local run's workers, too.",
    ),
    Influence(
        ("PYTHONSTARTUP", "PYTHONDONTWRITEBYTECODE", "PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONSAFEPATH"),
        "None on results. What each changes of Python holds for services, too.",
    ),
    Influence(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
        "None on training: a worker computes with `ESD_WORKER_THREADS` threads.",
        "worker/training/device.py",
    ),
    Influence(
        ("CUDA_VISIBLE_DEVICES",),
        "The GPUs that `ESD_WORKER_DEVICE` counts. None on a run on processors.",
        "worker/training/device.py",
    ),
    Influence(
        ("CUBLAS_WORKSPACE_CONFIG",),
        "Set to `:4096:8` in workers if it is not set, because the order of sums on a GPU varies otherwise.",
        "worker/training/device.py",
    ),
    Influence(
        ("GLOO_SOCKET_IFNAME",),
        "Network interface of the all-reduce; `esd serve worker` sets the one that leads to the dispatcher.",
        "esd/cli/serve.py",
    ),
    Influence(
        ("GRPC_VERBOSITY", "GRPC_TRACE", "GRPC_POLL_STRATEGY", "GRPC_ENABLE_FORK_SUPPORT"),
        "gRPC's own, in command and services; its log goes to standard error. The command and its services have "
        "`GRPC_VERBOSITY=ERROR` if it is not set.",
        "esd/cli/console.py",
    ),
    Influence(
        ("NO_COLOR", "FORCE_COLOR", "TERM"),
        "Colours and the progress bar, as rich has them. `TERM=dumb` and pipes get lines instead of a bar.",
        "esd/cli/shown_run.py",
    ),
    Influence(
        ("COLUMNS",),
        "Width of tables, and 0 counts as not given. Addresses and messages are never broken.",
        "esd/cli/console.py",
    ),
)

CONDITIONS = (
    Influence(
        ("umask",),
        "Models, checkpoints and logs have the permissions that it leaves: with 077 a service of another user cannot "
        "read them. Passwords, tokens and keys are for their owner alone whatever it is.",
        "services/runtime/whole_files.py",
    ),
    Influence(
        ("ulimit -n, -u, -v, -f",),
        "The limit of open files is raised as far as the system lets a process do that. When a process ends for want "
        "of files, threads, memory or room, the message names the limits that are low.",
        "services/runtime/low_limits.py",
    ),
    Influence(
        ("no /dev/shm, or a small one",),
        "None: workers on one machine share memory without a file.",
    ),
    Influence(
        ("a host name that does not resolve",),
        "None on a local run, which uses addresses only.",
        "esd/run/services.py",
    ),
    Influence(
        ("no IPv4, or no IPv6",),
        "A local run takes `127.0.0.1`, and `::1` where the machine has no such address. Every option and setting of "
        "an address takes `[::1]:50051`, too.",
        "esd/run/services.py",
    ),
    Influence(
        ("a working directory that was removed",),
        "A local run is refused by name, because torch cannot be imported in such a place.",
        "esd/run/cluster.py",
    ),
    Influence(
        ("standard input, output or error that is closed",),
        "None, but that nothing is printed where it is closed.",
        "esd/cli/main.py",
    ),
)
