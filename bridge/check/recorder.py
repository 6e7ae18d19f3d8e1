"""A proxy in front of an API server that records a driver's requests and can spoil responses on demand."""

import http.client
import http.server
import threading
import time
import urllib.parse


class Recorder:
    """Plain HTTP in, TLS out; the caller's bearer token is passed on unchanged."""

    def __init__(self, server, tls):
        self.target = urllib.parse.urlsplit(server)
        self.tls = tls
        self.calls = []
        self.spoil = []
        self.watches = set()
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self):
                recorder.handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def handle(self, request):
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        call = {"method": request.command, "path": request.path, "body": body.decode(), "code": 0, "at": time.monotonic()}
        self.calls.append(call)
        if self.spoil:
            call["code"] = self.spoil.pop(0)
            if call["code"] == 0:
                request.close_connection = True
                request.connection.close()
                return
            answer(request, call["code"], b"spoiled by the test")
            return
        upstream = http.client.HTTPSConnection(self.target.hostname, self.target.port, context=self.tls, timeout=600)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "connection", "accept-encoding")}
        upstream.request(request.command, request.path, body or None, headers)
        response = upstream.getresponse()
        call["code"] = response.status
        if "watch=true" in request.path and response.status == 200:
            self.stream(request, response)
        else:
            answer(request, response.status, response.read())
        upstream.close()

    def stream(self, request, response):
        self.watches.add(request)
        request.send_response(200)
        request.send_header("content-type", "application/json")
        request.send_header("transfer-encoding", "chunked")
        request.end_headers()
        try:
            while piece := response.read1(65536):
                request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                request.wfile.flush()
            request.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        finally:
            self.watches.discard(request)
            request.close_connection = True

    def cut_watches(self):
        """Breaks the connection of every open watch; returns how many there were."""
        open_now = list(self.watches)
        for request in open_now:
            request.connection.shutdown(2)
        return len(open_now)


def answer(request, code, body):
    request.send_response(code)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
