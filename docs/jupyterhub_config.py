"""JupyterHub for a class on one Linux machine; docs/instructors.md says how to set it up.

    COURSE_HOME=/srv/course COURSE_HUB=/srv/hub jupyterhub -f jupyterhub_config.py

Students log in with their account on the machine, so that the system itself keeps their files apart. To look at all of
this without accounts and without root, on this computer only: COURSE_HUB_TRIAL=<a password>; everybody is then the same
user to the system, and can read what the others wrote.
"""

import os
import sys
from pathlib import Path

COURSE = Path(os.environ.get("COURSE_HOME", "/srv/course")).resolve()  # the students' copy, with its .venv
HUB = Path(os.environ.get("COURSE_HUB", "/srv/hub")).resolve()  # the hub's own files, and the proxy from npm
TRIAL = os.environ.get("COURSE_HUB_TRIAL", "")
SINGLE_USER = COURSE / ".venv" / "bin" / "jupyterhub-singleuser"
PROXY = HUB / "node_modules" / ".bin" / "configurable-http-proxy"

for needed in (SINGLE_USER, PROXY):
    if not needed.exists():
        sys.exit(f"{needed} is missing: docs/instructors.md says how it gets there.")

c = get_config()  # noqa: F821  (JupyterHub gives this function to the file)

# Only this computer can reach it. A web server with a certificate (Caddy, nginx) stands before it and passes
# https://hub.example.org on; passwords never travel in the clear.
c.JupyterHub.bind_url = os.environ.get("COURSE_HUB_ADDRESS", "http://127.0.0.1:8000")
c.ConfigurableHTTPProxy.command = [str(PROXY)]
c.JupyterHub.cookie_secret_file = str(HUB / "cookie_secret")
c.JupyterHub.db_url = f"sqlite:///{HUB / 'hub.sqlite'}"
c.ConfigurableHTTPProxy.pid_file = str(HUB / "proxy.pid")

# --- who may come in

if TRIAL:
    c.JupyterHub.authenticator_class = "shared-password"
    c.SharedPasswordAuthenticator.user_password = TRIAL
    c.Authenticator.allow_all = True
    c.JupyterHub.spawner_class = "simple"
    c.SimpleLocalProcessSpawner.home_dir_template = str(HUB / "homes" / "{username}")
else:
    c.JupyterHub.authenticator_class = "pam"
    c.PAMAuthenticator.allowed_groups = {"students"}  # groups of the system: sudo groupadd students
    c.PAMAuthenticator.admin_groups = {"instructors"}

# --- what everybody gets

c.Spawner.cmd = [str(SINGLE_USER)]
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = c.Spawner.start_timeout = 120
# A class computes at the same time: two threads each, and a server that nobody used for an hour goes.
c.Spawner.environment = {"OMP_NUM_THREADS": "2", "PATH": f"{SINGLE_USER.parent}:/usr/local/bin:/usr/bin:/bin"}
c.Spawner.args = [
    "--ServerApp.shutdown_no_activity_timeout=3600",
    "--MappingKernelManager.cull_idle_timeout=3600",
    "--LabApp.news_url=",
    "--LabApp.extension_manager=readonly",
]
