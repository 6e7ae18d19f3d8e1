"""The certificates of one control plane, made with openssl; the CA is created with the control plane and trusted nowhere else."""
import concurrent.futures
import subprocess

DAYS = "30"
NAMES = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
ADDRESSES = ["127.0.0.1", "10.96.0.1"]
# file name: (subject, key kind). Spark's client (fabric8) reads only RSA keys out of the box; the others are EC because
# it is faster.
CLIENTS = {
    "admin": ("/O=system:masters/CN=testenv-admin", "rsa"),
    "kube-controller-manager": ("/CN=system:kube-controller-manager", "ec"),
    "kube-scheduler": ("/CN=system:kube-scheduler", "ec"),
    "kubelet-client": ("/O=system:masters/CN=kube-apiserver-kubelet-client", "ec"),
}
KEYS = {"rsa": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "ec": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]}


def make(pki):
    pki.mkdir(mode=0o700)
    key(pki / "ca.key", "ec")
    openssl("req", "-x509", "-new", "-key", pki / "ca.key", "-subj", "/CN=testenv-ca", "-days", DAYS, "-out", pki / "ca.crt",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")
    serving = "subjectAltName=" + ",".join([f"DNS:{name}" for name in NAMES] + [f"IP:{address}" for address in ADDRESSES])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(signed, pki, "kube-apiserver", "/CN=kube-apiserver", "ec", f"{serving}\nextendedKeyUsage=serverAuth")]
        jobs += [pool.submit(signed, pki, name, subject, kind, "extendedKeyUsage=clientAuth") for name, (subject, kind) in CLIENTS.items()]
        jobs += [pool.submit(service_account_keys, pki)]
        for job in jobs:
            job.result()


def signed(pki, name, subject, kind, extensions):
    key(pki / f"{name}.key", kind)
    openssl("req", "-new", "-key", pki / f"{name}.key", "-subj", subject, "-out", pki / f"{name}.csr")
    (pki / f"{name}.ext").write_text(f"basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n{extensions}\n")
    serial = "0x" + name.encode().hex()[:30]
    openssl("x509", "-req", "-in", pki / f"{name}.csr", "-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-set_serial", serial,
            "-days", DAYS, "-extfile", pki / f"{name}.ext", "-out", pki / f"{name}.crt")


def service_account_keys(pki):
    key(pki / "service-account.key", "rsa")
    openssl("pkey", "-in", pki / "service-account.key", "-pubout", "-out", pki / "service-account.pub")


def key(path, kind):
    openssl("genpkey", *KEYS[kind], "-out", path)


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {words[0]}: {done.stderr.strip()}")
