"""S3 servers that others wrote, with a proxy before them that counts requests and can be told to misbehave.

1. A server verifies the signature of each request by the keys of a user that it knows. The tool's own requests are
   signed here, and pass by the proxy.
2. The proxy changes nothing of a request or a reply unless a fault says so.

Used by tools/s3-servers.
"""
import contextlib
import datetime
import hashlib
import hmac
import http.client
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.parse

from ceph import Cluster
from private import done, fail, need, started, until

SERVER, PROXY = 5000, 5001
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


class Fault:
    """What the proxy does wrong, `times` times; for ever without."""

    def __init__(self, kind, times=None, deltas=()):
        self.kind, self.times, self.deltas, self.done = kind, times, deltas, 0

    def strikes(self):
        if self.times is not None and self.done >= self.times:
            return False
        self.done += 1
        return True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_any(self):
        proxy, fault = self.server.proxy, self.server.proxy.fault
        path, body = self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP - {"date"}}
        kind = fault.kind if fault else None
        is_delta, is_list = "/deltas/" in path, "list-type=2" in path
        is_manifest = "/manifests/" in path and not is_list
        put_whole = self.command == "PUT" and "?" not in path
        if kind == "unavailable" and fault.strikes():
            return self.answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        if kind == "drops-puts" and put_whole and is_manifest and fault.strikes():
            return self.answer(200, {"ETag": '"0"'}, b"")
        if kind == "ignores-conditions" and put_whole and fault.strikes():
            # The header is signed, so it stays; what it would protect goes.
            proxy.delete(path.split("/", 2)[2])
        if kind == "swaps-objects" and self.command == "GET" and is_delta and fault.strikes():
            # Of two objects each is answered in place of the other.
            one, other = fault.deltas
            name = other if path.endswith(one) else one
            return self.answer(*proxy.direct("GET", name, headers={"Range": self.headers["Range"]}))
        status, got, data = proxy.forward(self.command, path, body, headers)
        proxy.note(self.command, path, self.headers, status, len(data))
        if kind == "loses-answers" and self.command == "PUT" and fault.strikes():
            self.close_connection = True
            return None
        if kind == "hides-the-newest" and is_list and b"/manifests/" in data:
            fault.strikes()
            data = re.sub(rb"(?s)<Contents>(?:(?!<Contents>).)*</Contents>(?!.*<Contents>)", b"", data)
        if kind == "cuts-ranges" and status == 206 and fault.strikes():
            data = data[:len(data) // 2]
        if kind == "breaks-off" and status in (200, 206) and len(data) > 100 and fault.strikes():
            self.answer(status, got, data, len(data) // 2)
            self.close_connection = True
            return None
        return self.answer(status, got, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def answer(self, status, headers, data, sent=None):
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in HOP:
                self.send_header(name, value)
        # A reply to HEAD has the length of what it does not have.
        length = headers.get("Content-Length", 0) if self.command == "HEAD" else len(data)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(data[:sent])


class S3:
    """A server and its proxy, with a bucket, and the keys of a user. What follows is a kind of server."""
    bucket = "volumes"
    key, secret = "AKIDOFTHETOOL", "secret-of-the-tool"

    def __init__(self):
        self.fault, self.seen = None, []
        self.lock, self.turn = threading.Lock(), threading.Lock()
        self.start()
        self.direct("PUT", "")
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", PROXY), Handler)
        proxy.daemon_threads, proxy.proxy = True, self
        threading.Thread(target=proxy.serve_forever, daemon=True).start()

    def environment(self):
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT": f"http://127.0.0.1:{PROXY}", "AWS_ALLOW_HTTP": "true"}

    @staticmethod
    def listens():
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", SERVER)) == 0

    @staticmethod
    def ask(method, path, body, headers):
        there = http.client.HTTPConnection("127.0.0.1", SERVER, timeout=60)
        there.putrequest(method, path, skip_host="host" in map(str.lower, headers), skip_accept_encoding=True)
        for name, value in headers.items():
            there.putheader(name, value)
        there.putheader("Content-Length", str(len(body)))
        there.endheaders(body)
        reply = there.getresponse()
        data = reply.read()
        there.close()
        return reply.status, dict(reply.getheaders()), data

    def forward(self, *words):
        return self.ask(*words)

    def signed(self, method, path, query, body):
        """The headers of a request by Signature Version 4."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": f"127.0.0.1:{SERVER}", "x-amz-content-sha256": digest, "x-amz-date": now}
        names = ";".join(headers)
        lines = [method, path, query, *(f"{name}:{value}" for name, value in headers.items()), "", names, digest]
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        mac = ("AWS4" + self.secret).encode()
        for part in (*scope.split("/"), "\n".join(["AWS4-HMAC-SHA256", now, scope, hashed])):
            mac = hmac.digest(mac, part.encode(), "sha256")
        return {**headers, "Authorization": f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names}, "
                                            f"Signature={mac.hex()}"}

    def direct(self, method, name, body=b"", headers=None, query=""):
        """A request of the tool itself, for an object of the bucket. It passes by the proxy."""
        path = f"/{self.bucket}/{name}".rstrip("/")
        headers = {**self.signed(method, path, query, body), **(headers or {})}
        reply = self.ask(method, path + ("?" + query if query else ""), body, headers)
        if reply[0] >= 300:
            fail(f"{method} {path}: {reply}")
        return reply

    def names(self, prefix):
        query = "list-type=2&prefix=" + urllib.parse.quote(prefix, safe="")
        return re.findall(r"<Key>(.*?)</Key>", self.direct("GET", "", query=query)[2].decode())

    def get(self, name):
        return self.direct("GET", name)[2]

    def put(self, name, data):
        self.direct("PUT", name, data)

    def delete(self, name):
        self.direct("DELETE", name)

    def note(self, method, path, headers, status, length):
        with self.lock:
            self.seen.append((method, path, headers.get("Range"), headers.get("If-None-Match"), status, length))

    @contextlib.contextmanager
    def wrong(self, kind, times=None, deltas=()):
        """The server misbehaves meanwhile, with some faults in two objects."""
        self.fault = Fault(kind, times, deltas)
        self.lets_in(kind == "lets-everyone-in")
        try:
            yield self.fault
        finally:
            self.fault = None
            self.lets_in(False)


class Moto(S3):
    """moto. It knows the user from IAM, and makes the keys."""
    name = "moto"

    @staticmethod
    def prepare(home):
        """In a virtual environment of its own, by pip, unless the variable S3_VENV names one."""
        if os.environ.get("S3_VENV"):
            os.symlink(os.path.abspath(os.environ["S3_VENV"]), f"{home}/venv")
            return
        if subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True).returncode:
            need("/usr/share/doc/python3-venv:python3-venv")
        for words in ([sys.executable, "-m", "venv", f"{home}/venv"],
                      [f"{home}/venv/bin/pip", "install", "-q", "--disable-pip-version-check", "moto[s3]>=5.1",
                       "flask", "flask-cors"]):
            if subprocess.run(words, stdout=sys.stderr).returncode:
                fail(f"`{' '.join(words)}` failed")

    def start(self):
        server = started("moto", "venv/bin/moto_server", "-H", "127.0.0.1", "-p", str(SERVER))
        until("moto listens", self.listens, server)
        self.iam("CreateUser", UserName="writer")
        rights = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
        self.iam("PutUserPolicy", UserName="writer", PolicyName="all", PolicyDocument=rights)
        made = self.iam("CreateAccessKey", UserName="writer")
        self.key, self.secret = (re.search(rf"<{name}>(.*?)</{name}>", made)[1]
                                 for name in ("AccessKeyId", "SecretAccessKey"))
        self.lets_in(False)

    def forward(self, *words):
        # moto looks and puts in two steps. One after the other, puts with a condition are atomic.
        with self.turn:
            return self.ask(*words)

    def iam(self, action, **words):
        body = urllib.parse.urlencode({"Action": action, "Version": "2010-05-08", **words}).encode()
        # The signature is not looked at yet; the scope says which service is asked.
        scope = "tool/20260101/us-east-1/iam/aws4_request"
        service = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
        status, _, data = self.ask("POST", "/", body, {
            "Authorization": service, "Content-Type": "application/x-www-form-urlencoded", "Host": "iam.amazonaws.com"})
        if status != 200:
            fail(f"moto: {action}: {status} {data}")
        return data.decode()

    def lets_in(self, everyone):
        """Are requests taken without a look at their signature?"""
        self.ask("POST", "/moto-api/reset-auth", b"inf" if everyone else b"0", {})


class Gateway(S3):
    """Ceph's gateway, in a cluster of one machine."""
    name = "radosgw"

    @staticmethod
    def prepare(_):
        Cluster.packages()
        need("radosgw:radosgw", "radosgw-admin:radosgw")

    def start(self):
        self.cluster = Cluster(os.getcwd())
        done("radosgw-admin", "user", "create", "--uid=writer", "--display-name=writer", "--access-key", self.key,
             "--secret", self.secret)
        server = started("radosgw", "radosgw", "-f", "--name", "client.rgw", "--rgw-frontends",
                         f"beast endpoint=127.0.0.1:{SERVER}")
        until("radosgw listens", self.listens, server)

    def lets_in(self, everyone):
        if everyone:
            fail("radosgw lets nobody in without a signature")


SERVERS = {server.name: server for server in (Moto, Gateway)}
