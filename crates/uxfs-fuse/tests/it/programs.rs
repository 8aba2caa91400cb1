//! Real programs on the mount, each checked by its own means.

use std::path::Path;

use crate::rig::{Ours, Volume, run, run_in};

fn sh(dir: &Path, script: &str) -> String {
    run_in(dir, "bash", &["-euo", "pipefail", "-c", script])
}

#[test]
fn git_tar_and_sqlite() {
    let volume = Box::new(Ours::new(512 << 20, ""));
    let dir = volume.dir();
    git(&dir);
    tar(&dir);
    sqlite(&dir);
    volume.end();
}

fn git(dir: &Path) {
    let script = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
                  GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null
        git init -q repo && cd repo
        for n in $(seq 300); do mkdir -p d$((n % 7)); seq $n 400 > d$((n % 7))/f$n; done
        git add -A && git -c core.fsync=all commit -qm one
        git mv d1 moved && git rm -rq d2 && git commit -qm two
        git checkout -q HEAD^ && git checkout -q - && git gc -q --aggressive
        git fsck --strict --full && test -z \"$(git status --porcelain)\"
        cd .. && git clone -q repo clone && git -C clone fsck --strict
        diff -r --exclude .git repo clone";
    sh(dir, script);
}

fn tar(dir: &Path) {
    let script = "mkdir tree && cp -a /usr/include/linux tree/ 2>/dev/null || cp -a /etc tree/
        cd tree && ln -s nowhere link && mkfifo fifo && mknod null c 1 3
        truncate -s 5M sparse && printf x | dd of=sparse bs=1 seek=4000000 conv=notrunc status=none
        touch -d '1999-12-31 23:59:59.123456789' fifo && chown -h 12:34 link
        setfattr -n user.k -v v sparse && setfacl -m u:1000:rw sparse
        cd .. && tar --xattrs --xattrs-include='*' --acls -S -cf a.tar tree
        mkdir back && tar --xattrs --xattrs-include='*' --acls -C back -xpf a.tar
        tar --xattrs --xattrs-include='*' --acls -C back -df a.tar
        diff -r --no-dereference -x fifo -x null tree back/tree
        test \"$(getfattr -dm- back/tree/sparse 2>/dev/null)\" = \\
             \"$(getfattr -dm- tree/sparse 2>/dev/null | sed s,tree,back/tree,)\"
        rm -r tree back";
    sh(dir, script);
}

fn sqlite(dir: &Path) {
    for mode in ["wal", "delete"] {
        let script = format!(
            "sqlite3 {mode}.db \"pragma journal_mode={mode}; create table t(a integer primary key, \
             b blob);\" >/dev/null
            for n in 1 2 3; do
                sqlite3 {mode}.db \"with recursive c(x) as (select 1 union all select x+1 from c \
                 where x<400) insert into t(b) select randomblob(900) from c; delete from t where \
                 a % 3 = 0;\"
            done
            sqlite3 {mode}.db 'pragma integrity_check; vacuum; pragma integrity_check; \
             select count(*) > 500 from t;'"
        );
        assert_eq!(sh(dir, &script), "ok\nok\n1\n");
    }
}

#[test]
fn fio_verifies() {
    let volume = Box::new(Ours::new(320 << 20, ""));
    let dir = volume.dir();
    for engine in ["sync", "mmap", "libaio"] {
        let direct = if engine == "libaio" { "1" } else { "0" };
        let args = [
            format!("--name={engine}"),
            format!("--ioengine={engine}"),
            format!("--directory={}", dir.display()),
            format!("--direct={direct}"),
            "--rw=randwrite --bs=4k --size=8m --verify=crc32c --do_verify=1 --iodepth=8".into(),
        ];
        let args: Vec<&str> = args.iter().flat_map(|arg| arg.split(' ')).collect();
        run("fio", &args);
    }
    volume.end();
}
