"""The sink's certificate: the one it was given, or a self-signed one that is valid for a day of tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile

from zonemta_py.logs.causes import cause
from zonemta_py.sink.options import SinkError, SinkOptions

_LIFE = datetime.timedelta(days=30)


def tls_context(options: SinkOptions) -> ssl.SSLContext | None:
    """None where neither STARTTLS nor implicit TLS is wanted. Raises SinkError."""
    if not options.starttls and not options.implicit_tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if options.certificate is not None:
        try:
            context.load_cert_chain(options.certificate, options.key)
        except OSError as error:  # ssl.SSLError is one
            raise SinkError(
                f"{options.certificate}: is not a certificate with its key ({cause(error)}); name PEM files"
            ) from None
        return context
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(self_made(options.hostname))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def self_made(hostname: str) -> bytes:
    """PEM of a private key and a self-signed certificate for `hostname`, localhost and the loopback addresses."""
    # Only here: most sinks need no certificate, and the library takes longer to load than all the rest.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hostname)])
    loopback = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _LIFE)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(hostname), x509.DNSName("localhost"), *loopback]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
