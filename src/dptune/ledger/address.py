"""The address of a ledger, a file name or a URL, and the part of it that is not secret."""

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from dptune.errors import InvalidInput

if TYPE_CHECKING:
    import sqlalchemy as sa

_FORM = "postgresql://user:password@host:port/database"
# PostgreSQL's connection options: those that may be shown and stored, and the secret ones.
_OPEN_OPTIONS = frozenset(
    re.findall(
        r"\w+",
        """application_name channel_binding client_encoding connect_timeout dbname
        fallback_application_name gssdelegation gssencmode gsslib host hostaddr keepalives
        keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts
        max_protocol_version min_protocol_version options passfile port require_auth requirepeer
        service ssl_max_protocol_version ssl_min_protocol_version sslcert sslcertmode
        sslcompression sslcrl sslcrldir sslkey sslmode sslnegotiation sslrootcert sslsni
        target_session_attrs tcp_user_timeout user""",
    )
)
_SECRET_OPTIONS = frozenset(
    ("oauth_client_secret", "password", "scram_client_key", "scram_server_key", "sslpassword")
)
# Addresses that look like a server's, even if malformed. Errors would show them as file names.
_MEANT_FOR_A_SERVER = re.compile(r"^\s*postgres\w*[:/+]|\bpassword\s*=|://", re.I)
# User and password as SQLAlchemy parses them. The rest is shown, so it must hold no part of them.
_AFTER_PASSWORD = re.compile(r"[\w+]+://(?:[^:/]*(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)
_SECRET_SETTING = re.compile(r"pass|pwd|secret|token|key|credential", re.I)


def is_file(address: str) -> bool:
    """Whether the address is a file name, which may be shown."""
    return not _MEANT_FOR_A_SERVER.search(address)


def without_secrets(address: str) -> str:
    """The address as it may be stored. For a new connection, the password comes from the places
    that PostgreSQL's own tools use."""
    if is_file(address):
        return address
    harmless = open_part(url_of(address)).render_as_string()
    return address if unquote(address) == unquote(harmless) else harmless


def are_one(address: str, other: str) -> bool:
    """Whether two addresses, each with or without its password, name the same ledger."""
    if is_file(address) or is_file(other):
        return address == other
    return open_part(url_of(address)) == open_part(url_of(other))


def url_of(address: str) -> "sa.URL":
    """The URL as SQLAlchemy parses it; refuses one whose secret parts are ambiguous."""
    import sqlalchemy as sa
    from sqlalchemy import exc

    try:
        url = sa.make_url(address)
    except (exc.ArgumentError, ValueError):
        raise InvalidInput(
            "the ledger's address looks like that of a server but cannot be read as a URL; the "
            f"form is {_FORM}."
        ) from None
    match = _AFTER_PASSWORD.fullmatch(address)
    if match is None or "@" in match["rest"]:
        raise InvalidInput(
            "the ledger's address has an @ after the one before the host, so the end of its "
            f"password is ambiguous; the form is {_FORM}, with %40 for an @ in any part."
        )
    options = parse_qsl(match["rest"].partition("?")[2], keep_blank_values=True)
    allowed = _OPEN_OPTIONS | _SECRET_OPTIONS
    if url.get_backend_name() == "postgresql" and not {name for name, _ in options} <= allowed:
        raise InvalidInput(
            "the ledger's address has an option that PostgreSQL does not have; the form is "
            f"{_FORM}?option=value, with %26 for an & and %3F for a ? in any part."
        )
    return url


def open_part(url: "sa.URL") -> "sa.URL":
    """The URL without anything that is or may be secret."""
    import sqlalchemy as sa

    query = {
        name: tuple(map(_open_settings, values)) if name == "options" else values
        for name, values in url.normalized_query.items()
        if name in _OPEN_OPTIONS
    }
    return sa.URL.create(
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query=query,
    )


def _open_settings(options: str) -> str:
    """The server settings (-c NAME=VALUE ...) without those whose names suggest a secret."""
    words = re.findall(r"(?:\\.|[^\s\\])+", re.sub(r"(^|\s)-c\s+", r"\1-c", options))
    return " ".join(word for word in words if not _SECRET_SETTING.search(word.partition("=")[0]))
