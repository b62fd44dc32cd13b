"""How a comet and a device agree on a key, and what is encrypted with it (P4).

The comet's part travels in auth_success, the device's in exchange_key:

    encrypt_key                                                        97 bytes
    +------------+-------------------+----------------------------+
    | version u8 | X25519 public: 32 | Ed25519 signature: 64      |
    +------------+-------------------+----------------------------+
    secret_key                                   33 bytes
    +------------+-------------------+
    | version u8 | X25519 public: 32 |
    +------------+-------------------+

Both parts are fresh for each connection. The signature is by the identity that the device was given
with its token, over

    "chappe push 1 comet key" | version u8 | client_id | X25519 public

where | joins fields that are each preceded by their length as u16. So no comet's part can be put
before another client, and none that the identity did not make. Then both compute

    shared     = X25519(own private, other's public)        all zero: refused
    transcript = SHA-256("chappe push 1 transcript" | client_id | encrypt_key | secret_key)
    key        = HKDF-SHA256(shared, salt = transcript, info = "chappe push 1 server to device", 32)

and contents go from the comet to the device as

    encrypted_content = ChaCha20-Poly1305(key, nonce, content, aad = head)     content + 16 bytes
    nonce = 4 zero bytes, counter u64
    head  = type, id, job_id and timestamp of the message_struct, as they are on the wire

The counter begins at 0 and counts message_structs in the order in which they stand on the
connection, in lists or alone. What is lost, repeated, reordered or changed on the way does not
decrypt, and ends the connection. A device encrypts nothing: what it says holds no contents.
"""

from __future__ import annotations

from hashlib import sha256

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from chappe.errors import LocalProtocolError, RemoteProtocolError
from chappe.wire.pushfield import write_blob

VERSION = 1
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
KEY_BYTES = 32
TAG_BYTES = 16
ENCRYPT_KEY_BYTES = 1 + PUBLIC_BYTES + SIGNATURE_BYTES
SECRET_KEY_BYTES = 1 + PUBLIC_BYTES
# A session ends before: its device comes back and agrees on another key.
MESSAGES_MAX = 2**32

_SIGNED = b"chappe push 1 comet key"
_TRANSCRIPT = b"chappe push 1 transcript"
_INFO = b"chappe push 1 server to device"
_NONCE_ZEROS = bytes(4)


class UntrustedComet(RemoteProtocolError):
    """The comet's key was not signed by the identity that this device knows."""


class CometAgreement:
    """The comet's side of one agreement; `private` is 32 random bytes that are used once."""

    __slots__ = ("_client", "_private", "encrypt_key")

    def __init__(self, client_id: str, private: bytes, identity: Ed25519PrivateKey) -> None:
        self._client = client_id.encode()
        self._private = private
        public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
        signature = identity.sign(_signed(self._client, public))
        # What auth_success carries.
        self.encrypt_key = bytes((VERSION,)) + public + signature

    def agree(self, secret_key: bytes) -> Sealing:
        """Take exchange_key's part; raises RemoteProtocolError that names it."""
        _check_part("secret_key", secret_key, SECRET_KEY_BYTES)
        shared = _shared("secret_key", self._private, secret_key[1:])
        return Sealing(_key(shared, self._client, self.encrypt_key, secret_key))


class DeviceAgreement:
    """The device's side of one agreement; `private` is 32 random bytes that are used once.

    Raises LocalProtocolError for an identity that is none.
    """

    __slots__ = ("_client", "_identity", "_private", "secret_key")

    def __init__(self, client_id: str, private: bytes, identity: bytes) -> None:
        self._client = client_id.encode()
        self._private = private
        if len(identity) != PUBLIC_BYTES:
            raise LocalProtocolError(f"identity: {len(identity)} bytes, {PUBLIC_BYTES} wanted")
        self._identity = Ed25519PublicKey.from_public_bytes(identity)
        public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
        # What exchange_key carries.
        self.secret_key = bytes((VERSION,)) + public

    def agree(self, encrypt_key: bytes) -> Opening:
        """Take auth_success's part.

        Raises UntrustedComet if somebody else than the identity made it, RemoteProtocolError if it
        is not a key.
        """
        _check_part("encrypt_key", encrypt_key, ENCRYPT_KEY_BYTES)
        public, signature = encrypt_key[1 : 1 + PUBLIC_BYTES], encrypt_key[1 + PUBLIC_BYTES :]
        try:
            self._identity.verify(signature, _signed(self._client, public))
        except InvalidSignature:
            reason = "encrypt_key: not signed by the identity that came with the token"
            raise UntrustedComet(reason) from None
        shared = _shared("encrypt_key", self._private, public)
        return Opening(_key(shared, self._client, encrypt_key, self.secret_key))


class Sealing:
    """Encrypts contents for one device, in the order in which they are sent.

    It keeps the key and not the cipher, which takes 2 kB and is made quickly: a comet has one of
    these for every device.
    """

    __slots__ = ("count", "key")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.count = 0

    def seal(self, head: bytes, content: bytes) -> bytes:
        """The encrypted_content; raises LocalProtocolError when the key is used up."""
        nonce = _nonce(self.count)
        self.count += 1
        return ChaCha20Poly1305(self.key).encrypt(nonce, content, head)


class Opening:
    """Decrypts contents from a comet, in the order in which they come."""

    __slots__ = ("_cipher", "count")

    def __init__(self, key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self.count = 0

    def open(self, head: bytes, encrypted_content: bytes) -> bytes:
        """The content; raises RemoteProtocolError if it is not the next that the comet sealed."""
        nonce = _nonce(self.count)
        try:
            content = self._cipher.decrypt(nonce, encrypted_content, head)
        except InvalidTag:
            raise RemoteProtocolError("encrypted_content: not what the comet sealed") from None
        self.count += 1
        return content


def _nonce(count: int) -> bytes:
    if count >= MESSAGES_MAX:
        raise LocalProtocolError(f"a key is for {MESSAGES_MAX} messages: agree on another")
    return _NONCE_ZEROS + count.to_bytes(8)


def _check_part(field: str, part: bytes, size: int) -> None:
    if not part or part[0] != VERSION:
        has = part[0] if part else "none"
        raise RemoteProtocolError(f"{field}: version {VERSION} wanted, it has {has}")
    if len(part) != size:
        raise RemoteProtocolError(f"{field}: {len(part)} bytes, {size} wanted")


def _joined(*fields: bytes) -> bytes:
    return b"".join([write_blob("transcript", field) for field in fields])


def _signed(client: bytes, public: bytes) -> bytes:
    return _joined(_SIGNED, bytes((VERSION,)), client, public)


def _shared(field: str, private: bytes, public: bytes) -> bytes:
    try:
        mine = X25519PrivateKey.from_private_bytes(private)
        return mine.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        # A point of small order makes the secret all zero, whatever the other's private key.
        raise RemoteProtocolError(f"{field}: not a public key of X25519") from None


def _key(shared: bytes, client: bytes, encrypt_key: bytes, secret_key: bytes) -> bytes:
    transcript = sha256(_joined(_TRANSCRIPT, client, encrypt_key, secret_key)).digest()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=transcript, info=_INFO).derive(shared)
