"""The API server that a kubeconfig names, for Python's own HTTP client: its address, its CA and the credentials.

Reads the files that testenv and `firesteel local` write: one cluster and one user, with all data in the file."""
import base64
import re
import ssl
import tempfile


class Access:
    def __init__(self, path):
        text = path.read_text()
        self.server = field(text, "server")
        self.authority = base64.b64decode(field(text, "certificate-authority-data")).decode()
        self.tls = self.trusting()
        # A token in our own kubeconfigs, a certificate in those of testenv.
        token = field(text, "token")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        if not token:
            self.show_certificate(field(text, "client-certificate-data"), field(text, "client-key-data"))

    def trusting(self):
        """TLS that trusts this server and presents no certificate."""
        tls = ssl.create_default_context(cadata=self.authority)
        tls.check_hostname = False
        return tls

    def show_certificate(self, certificate, key):
        with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
            pem.write(base64.b64decode(certificate) + b"\n" + base64.b64decode(key))
            pem.flush()
            self.tls.load_cert_chain(pem.name)


def field(text, key):
    """The value of a key, or `None`."""
    found = re.search(rf'{key}"?: *"?([^"\s,]+)', text)
    return found and found.group(1)
