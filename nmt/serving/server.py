"""The server as configured: runs, address and limits."""

import dataclasses
import ipaddress
import socket

import torch
import uvicorn

from nmt.config.schema import ServeConfig
from nmt.errors import UserError
from nmt.serving.app import Api, build_app
from nmt.serving.served_run import ServedRun

MAX_CONNECTIONS = 1_000
LOOPBACK = ["127.0.0.1", "localhost", "::1", "[::1]"]


def serve(config: ServeConfig) -> None:
    """Load the runs and serve until interrupted, then raise KeyboardInterrupt; raise UserError if there is no such run,
    the runs do not fit together, or the address cannot be used.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with listen(config.host, config.port) as listener:
        api = Api(load(config), max_waiting=config.max_waiting, requests_per_second=config.requests_per_second)
        app = build_app(api, hosts_of(config.host))
        host, port = listener.getsockname()[:2]
        url_host = f"[{host}]" if ":" in host else host
        note = "" if is_loopback(config.host) else "; other machines can reach it, and there is no password"
        print(f"serving {config.checkpoint} at http://{url_host}:{port} (Ctrl-C ends it{note})", flush=True)
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(settings)
        api.queue.is_ending = lambda: server.should_exit
        server.run(sockets=[listener])
    # Started with SIGINT ignored, as shells start background jobs, uvicorn ends at it all the same, and returns.
    raise KeyboardInterrupt


def load(config: ServeConfig) -> dict[str, ServedRun]:
    """Load the runs that are served, by the names of requests; raise UserError if they read different languages."""
    search = dataclasses.asdict(config.search)
    paths = {"checkpoint": config.checkpoint} | ({"compare": config.compare} if config.compare else {})
    runs = {
        name: ServedRun.load(
            path, max_subwords=config.max_subwords, device=config.device, precision=config.precision, **search
        )
        for name, path in paths.items()
    }
    languages = [run.languages[0] for run in runs.values()]
    if len(set(languages)) > 1:
        difference = f"{config.compare} translates from {languages[1]}, and {config.checkpoint} from {languages[0]}"
        raise UserError(f"compare: {difference}: give a run of the same source language")
    return runs


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; raise UserError if that fails, as where another program listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except (OSError, TypeError, ValueError) as error:
        advice = "choose another port=, or 0 for a free one"
        raise UserError(
            f"cannot listen on host={host} port={port}: {getattr(error, 'strerror', None) or error}; {advice}"
        ) from error


def hosts_of(host: str) -> list[str]:
    """Return the names by which a browser may call the server; of this machine alone those that can mean no other."""
    return [*LOOPBACK, host] if is_loopback(host) else ["*"]


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
