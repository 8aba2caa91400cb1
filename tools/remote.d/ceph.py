"""A Ceph cluster of one monitor and three OSDs in a directory, with every block on two OSDs.

1. Without ceph-mgr, which keeps statistics only: OSDs are asked whether their placement groups are clean.
2. librbd keeps what was written in memory until it is flushed, as long as it has room. So a flush that does not
   reach it is a loss when the process dies.

Used by tools/ceph-rbd and, for Ceph's gateway, by tools/s3-servers.
"""
import json
import os
import subprocess
import uuid

from private import done, killed, need, started, until

OSDS = 3
GROUPS = 8
POOL = "rbd"
CONF = """[global]
fsid = {fsid}
mon_host = v2:127.0.0.1:3300
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
keyring = {home}/keyring
run_dir = {home}
admin_socket = {home}/$name.asok
log_file = {home}/$name.ceph.log
crash_dir = {home}
mon_data = {home}/mon
osd_data = {home}/osd.$id
osd_pool_default_size = 2
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_pool_default_pg_num = 8
osd_crush_chooseleaf_type = 0
osd_objectstore = bluestore
bluestore_block_size = 4294967296
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
# A dead OSD is noticed within seconds.
osd_heartbeat_grace = 6
mon_osd_min_down_reporters = 1
mon_osd_reporter_subtree_level = osd
[client]
log_file = {home}/client.ceph.log
rbd_cache_policy = writeback
rbd_cache_writethrough_until_flush = false
rbd_cache_size = 134217728
rbd_cache_max_dirty = 100663296
rbd_cache_target_dirty = 67108864
rbd_cache_max_dirty_age = 60
"""


class Cluster:
    """A cluster that runs. Its processes end with those of the namespace."""

    @staticmethod
    def packages():
        need("ceph-mon:ceph-mon", "ceph-osd:ceph-osd", "ceph:ceph-common", "rbd:ceph-common",
             "monmaptool:ceph-base", "qemu-nbd:qemu-utils",
             f"/usr/lib/{os.uname().machine}-linux-gnu/qemu/block-rbd.so:qemu-block-extra")

    def __init__(self, home):
        self.home, self.conf = home, os.path.join(home, "ceph.conf")
        os.environ["CEPH_CONF"] = self.conf
        fsid = str(uuid.uuid4())
        with open(self.conf, "x") as conf:
            conf.write(CONF.format(fsid=fsid, home=home))
        # The keys of all, in one file.
        keys = [("mon.", "mon", "allow *"), ("client.admin", "mon", "allow *", "osd", "allow *"),
                ("client.rgw", "mon", "allow rw", "osd", "allow rwx")]
        keys += [(f"osd.{number}", "mon", "allow profile osd", "osd", "allow *") for number in range(OSDS)]
        keyring = os.path.join(home, "keyring")
        for name, *caps in keys:
            words = [word for what, may in zip(caps[::2], caps[1::2]) for word in ("--cap", what, may)]
            create = [] if os.path.exists(keyring) else ["--create-keyring"]
            done("ceph-authtool", *create, keyring, "--gen-key", "--name", name, *words)
        monmap = os.path.join(home, "monmap")
        done("monmaptool", "--create", "--fsid", fsid, "--addv", "a", "[v2:127.0.0.1:3300]", monmap)
        os.mkdir(os.path.join(home, "mon"))
        done("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.mon = started("mon", "ceph-mon", "-f", "-i", "a")
        self.osds = {}
        for number in range(OSDS):
            name = str(uuid.uuid4())
            self.ceph("osd", "new", name)
            os.mkdir(os.path.join(home, f"osd.{number}"))
            done("ceph-osd", "--mkfs", "-i", str(number), "--osd-uuid", name)
            self.start_osd(number)
        self.ceph("osd", "pool", "create", POOL, str(GROUPS))
        self.ceph("osd", "pool", "application", "enable", POOL, "rbd")
        self.wait_clean()

    @staticmethod
    def ceph(*words):
        return done("ceph", "--connect-timeout", "60", *words)

    def start_osd(self, number):
        self.osds[number] = started(f"osd.{number}", "ceph-osd", "-f", "-i", str(number))
        until(f"OSD {number} is up", lambda: self.is_up(number), self.osds[number])

    def kill_osd(self, number):
        killed(self.osds[number])
        until(f"OSD {number} is down", lambda: not self.is_up(number))

    def is_up(self, number):
        osds = json.loads(self.ceph("osd", "dump", "--format=json"))["osds"]
        return any(osd["osd"] == number and osd["up"] for osd in osds)

    def is_clean(self, group):
        """Does the group have all its copies?"""
        asked = subprocess.run(["ceph", "--connect-timeout", "60", "tell", group, "query"], capture_output=True)
        return asked.returncode == 0 and json.loads(asked.stdout)["state"] == "active+clean"

    def wait_clean(self):
        """Waits until every block has both its copies."""
        pool = next(pool["pool"] for pool in json.loads(self.ceph("osd", "dump", "--format=json"))["pools"]
                    if pool["pool_name"] == POOL)
        for number in range(GROUPS):
            group = f"{pool}.{number:x}"
            until(f"group {group} is clean", lambda: self.is_clean(group))
