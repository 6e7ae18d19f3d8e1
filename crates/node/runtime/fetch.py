"""Fetches the source package of one release of pyspark, and goes on where an earlier attempt was interrupted.

usage: fetch.py VERSION DIRECTORY

From the package index that pip is set to use, as far as that is a plain one; the hash that the index names is checked. The file has its
final name only when it is whole; until then it is NAME.part. Exit codes: 0 it is there; 3 this is for pip (no such package, an index
or settings that are not understood); 4 the connection was lost too often; 5 the hash is wrong, and what was fetched is gone."""
import ast
import hashlib
import html
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

FOR_PIP, LOST, WRONG = 3, 4, 5
ATTEMPTS = 5
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


def settings():
    said = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    found = {}
    # The environment stands above the command's own section, and that above the one for all.
    for section in ("global", "download", ":env:"):
        for line in said.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(section + "."):
                try:
                    found[key[len(section) + 1:]] = ast.literal_eval(value)
                except (ValueError, SyntaxError):
                    pass
    return found


def opener(pip):
    handlers = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=pip.get("cert")))]
    if pip.get("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": pip["proxy"], "https": pip["proxy"]}))
    return urllib.request.build_opener(*handlers)


def find(web, index, name):
    """URL and SHA-256 of a file, as the index names them."""
    request = urllib.request.Request(f"{index.rstrip('/')}/pyspark/", headers={"Accept": ACCEPT})
    with web.open(request, timeout=60) as answer:
        base, kind, text = answer.url, answer.headers.get_content_type(), answer.read().decode()
    if kind.endswith("json"):
        files = [(each["filename"], each["url"], each["hashes"].get("sha256")) for each in json.loads(text)["files"]]
    else:
        files = []
        for link in re.findall(r"<a\s[^>]*href\s*=\s*[\"']([^\"']+)[\"']", text):
            url, _, fragment = html.unescape(link).partition("#")
            digest = re.search(r"sha256=([0-9a-f]{64})", fragment)
            files.append((urllib.parse.unquote(url.rsplit("/", 1)[1]), url, digest and digest.group(1)))
    for filename, url, digest in files:
        if filename == name and digest:
            return urllib.parse.urljoin(base, url), digest
    raise LookupError(name)


def go_on(web, url, part, name):
    """One connection's worth of the file, behind what is there. Whether all of it came."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = web.open(request, timeout=60)
    except urllib.error.HTTPError as error:
        # Nothing is behind the last byte: it is all there.
        if error.code == 416 and have:
            return True
        raise
    with answer:
        if answer.status != 206:
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        if total:
            print(f"Downloading {name} ({total / 1e6:.1f} MB)", flush=True)
        parent = os.getppid()
        with open(part, "ab" if have else "wb") as out:
            while block := answer.read(1 << 20):
                out.write(block)
                have += len(block)
                # Whoever wanted it is gone.
                if os.getppid() != parent:
                    sys.exit(LOST)
    return total is None or have >= total


def main(version, directory):
    name = f"pyspark-{version}.tar.gz"
    final = os.path.join(directory, name)
    part = final + ".part"
    pip = settings()
    index = pip.get("index-url") or "https://pypi.org/simple"
    if pip.get("no-index") or "@" in urllib.parse.urlsplit(index).netloc:
        return FOR_PIP
    try:
        web = opener(pip)
        url, digest = find(web, index, name)
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(f"{index}: {error}", file=sys.stderr)
        return FOR_PIP
    why = None
    for attempt in range(ATTEMPTS):
        time.sleep(attempt)
        try:
            if go_on(web, url, part, name):
                break
            why = "the connection was cut"
        except (OSError, ValueError) as error:
            why = error
    else:
        megabytes = os.path.getsize(part) / 1e6 if os.path.exists(part) else 0
        print(f"ERROR: {why}; {megabytes:.0f} MB are here, and the next attempt goes on from there", file=sys.stderr)
        return LOST
    seen = hashlib.sha256()
    with open(part, "rb") as whole:
        while block := whole.read(1 << 20):
            seen.update(block)
    if seen.hexdigest() != digest:
        os.remove(part)
        print(f"ERROR: {name} is not what the index says it is; it will be fetched again", file=sys.stderr)
        return WRONG
    os.replace(part, final)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
