//! Real programs on the mount, each with its own check.

use std::path::Path;

use crate::rig::{Image, Ours, Volume, run, run_in};

/// Runs a shell script that ends with the first command that fails.
pub(crate) fn sh(dir: &Path, script: &str) -> String {
    // A command negated by `!` does not end a script.
    let script = format!("not() {{ ! \"$@\"; }}\n{script}");
    run_in(dir, "bash", &["-euxo", "pipefail", "-c", &script])
}

/// Runs scripts on a new mount, and checks the volume afterwards.
fn on_a_mount(scripts: &[&str]) {
    let volume = Box::new(Ours::of(Image::new(512 << 20, &[]), ""));
    for script in scripts {
        sh(&volume.dir(), script);
    }
    volume.end();
}

/// The identity that git needs for a commit.
pub(crate) const GIT: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
    GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1\n";

#[test]
fn git() {
    let script = "
        git init -q repo && cd repo
        for n in $(seq 300); do mkdir -p d$((n % 7)); seq $n 400 > d$((n % 7))/f$n; done
        git add -A && git -c core.fsync=all commit -qm one
        git mv d1 moved && git rm -rq d2 && git commit -qm two
        git checkout -q HEAD^ && git checkout -q - && git gc -q --aggressive
        git fsck --strict --full && test -z \"$(git status --porcelain)\"
        cd .. && git clone -q repo clone && git -C clone fsck --strict
        git clone -q --no-local --bare repo bare.git && git -C bare.git fsck --strict --full
        git -C clone worktree add -q ../tree HEAD^ && git -C tree status --porcelain | wc -l
        git -C clone switch -qc side && echo more > clone/moved/more && git -C clone add -A
        git -C clone commit -qm side && git -C clone push -q origin side
        git -C repo merge -q side && git -C repo fsck --strict --full && git -C repo repack -qad
        git -C repo fsck --strict --full && test -z \"$(git -C repo status --porcelain)\"
        diff -r --exclude .git repo clone";
    on_a_mount(&[&format!("{GIT}{script}")]);
}

/// Makes a tree with all types of files and attributes in `tree`.
const TREE: &str = "mkdir tree && cp -a /usr/include/linux tree/ 2>/dev/null || cp -a /etc tree/
    cd tree && ln -s nowhere link && mkfifo fifo && mknod null c 1 3
    truncate -s 5M sparse && printf x | dd of=sparse bs=1 seek=4000000 conv=notrunc status=none
    printf hard > hard1 && ln hard1 hard2 && ln hard1 linux/hard3 2>/dev/null || ln hard1 etc/hard3
    touch -d '1999-12-31 23:59:59.123456789' fifo && chown -h 12:34 link && chmod 6755 hard1
    # rsync takes times of links to the second.
    touch -hd 2001-02-03 link
    touch -d '1960-01-02 03:04:05.6' sparse && touch -d '2106-02-03' null
    setfattr -n user.k -v v sparse && setfacl -m u:1000:rw sparse && setfattr -n trusted.t -v t hard1
    mkdir inherits && setfacl -d -m g:7:rx inherits && chmod 1777 inherits
    cd ..\n";

#[test]
fn tar_and_rsync() {
    let tar = "tar --xattrs --xattrs-include='*' --acls -S -cf a.tar tree
        mkdir back && tar --xattrs --xattrs-include='*' --acls -C back -xpf a.tar
        tar --xattrs --xattrs-include='*' --acls -C back -df a.tar
        diff -r --no-dereference -x fifo -x null tree back/tree
        test \"$(getfattr -dm- back/tree/sparse 2>/dev/null)\" = \\
             \"$(getfattr -dm- tree/sparse 2>/dev/null | sed s,tree,back/tree,)\"
        rm -r back a.tar";
    // Copy there and back: rsync would send what differs.
    let rsync = "again() { rsync -aHAXSin --delete --checksum \"$@\"; }
        rsync -aHAXS tree/ copy/ && test -z \"$(again tree/ copy/)\"
        outside=$(mktemp -d) && trap 'rm -r $outside' EXIT
        rsync -aHAXS copy/ $outside/ && test -z \"$(again tree/ $outside/)\"
        chmod 600 copy/hard1 && rm copy/sparse && echo more >> copy/hard2 && mkdir copy/extra
        rsync -aHAXS --delete tree/ copy/ && test -z \"$(again $outside/ copy/)\"
        test $(stat -c %h copy/hard1) = 3 && test $(stat -c %X copy/null || echo 0) != 0
        rsync -aHAXS --inplace --no-whole-file --ignore-times $outside/ copy/
        test -z \"$(again tree/ copy/)\"
        find tree -printf '%P %y %m %U %G %n %s %T@ %l\\n' | grep -v ' d ' | sort > list1
        find copy -printf '%P %y %m %U %G %n %s %T@ %l\\n' | grep -v ' d ' | sort > list2
        diff list1 list2; rm -r tree copy";
    on_a_mount(&[TREE, tar, rsync]);
}

#[test]
fn sqlite() {
    let volume = Box::new(Ours::new(320 << 20, ""));
    let dir = volume.dir();
    for mode in ["wal", "delete", "truncate", "persist"] {
        let script = format!(
            "sqlite3 {mode}.db \"pragma journal_mode={mode}; create table t(a integer primary key, \
             b blob);\" >/dev/null
            for n in 1 2 3; do
                sqlite3 {mode}.db \"pragma mmap_size=1000000; with recursive c(x) as (select 1 union \
                all select x+1 from c where x<400) insert into t(b) select randomblob(900) from c; \
                delete from t where a % 3 = 0;\" >/dev/null
            done
            # Several at once, who lock each other out.
            pids=(); for each in 1 2 3; do (for n in 1 2 3 4 5; do
                sqlite3 -cmd '.timeout 3600000' {mode}.db \"begin immediate; insert into t(b) values \
                (randomblob(5000)); update t set b = zeroblob(10) where a % 7 = $each; commit;\"
            done) & pids+=($!); done; for pid in ${{pids[@]}}; do wait $pid; done
            sqlite3 {mode}.db 'pragma integrity_check; vacuum; pragma integrity_check; \
             select count(*) > 500 from t;'
            sqlite3 {mode}.db .dump > dump.sql && sqlite3 copy.db < dump.sql
            test \"$(sqlite3 copy.db .dump | md5sum)\" = \"$(md5sum < dump.sql)\" && rm copy.db"
        );
        assert_eq!(sh(&dir, &script), "ok\nok\n1\n");
    }
    volume.end();
}

/// Builds a library of sixty sources, a generated header and a program, with four jobs.
#[test]
fn make() {
    let script = r##"
        project() { mkdir "$1"; cd "$1"; mkdir src
            for n in $(seq 60); do
                printf '#include "made.h"\nint f%d(int x) { return x * %d + MADE; }\n' $n $n > src/f$n.c
            done
            { for n in $(seq 60); do echo "int f$n(int);"; done; echo '#include <stdio.h>'
              echo 'int main(void) { int s = 0;'
              for n in $(seq 60); do echo "s += f$n(s % 1000);"; done
              echo 'printf("%d\n", s); return 0; }'; } > src/main.c
            printf '%s\n' 'OBJ := $(patsubst src/%.c,obj/%.o,$(filter-out src/main.c,$(wildcard src/*.c)))' \
              'prog: obj/main.o libf.a' '	$(CC) -o $@ $^' 'libf.a: $(OBJ)' '	rm -f $@; $(AR) rcsD $@ $^' \
              'obj/%.o: src/%.c made.h | obj' '	$(CC) -O1 -I. -c -o $@ $<' 'obj:' '	mkdir $@' \
              'made.h:' '	echo "#define MADE 7" > $@.tmp; mv $@.tmp $@' 'clean:' '	rm -r obj prog libf.a made.h' > Makefile
            make -sj4; cd ..; }
        outside=$(mktemp -d); trap 'rm -r $outside' EXIT
        (cd $outside && project p); project p
        diff -r p $outside/p
        test "$(p/prog)" = "$($outside/p/prog)"
        make -q -C p
        sleep 0.02; touch p/src/f7.c; not make -q -C p; make -sj4 -C p; make -q -C p
        diff -r p $outside/p
        make -s -C p clean; test "$(ls p)" = "$(printf 'Makefile\nsrc')""##;
    on_a_mount(&[script]);
}

/// Installs, upgrades, verifies and removes a package with all types of files.
#[test]
fn dpkg() {
    let script = r#"
        package() { rm -rf pkg; mkdir -p pkg/DEBIAN pkg/usr/bin pkg/usr/share/doc/demo pkg/etc pkg/var/lib/demo
            printf 'Package: demo\nVersion: %s\nArchitecture: all\nMaintainer: a <a@b>\nDescription: demo\n' $1 > pkg/DEBIAN/control
            echo /etc/demo.conf > pkg/DEBIAN/conffiles; echo "version $1" > pkg/etc/demo.conf
            for n in $(seq $2); do echo "$1 $n" > pkg/usr/share/doc/demo/file$n; done
            cp -a /usr/include/linux pkg/usr/share/doc/demo/ 2>/dev/null || cp -a /etc/init.d pkg/usr/share/doc/demo/
            printf '#!/bin/sh\n' > pkg/usr/bin/demo; chmod 4755 pkg/usr/bin/demo
            ln -s demo pkg/usr/bin/demo-link; ln pkg/usr/bin/demo pkg/usr/bin/demo-hard
            (cd pkg && find usr etc -type f | xargs md5sum > DEBIAN/md5sums)
            dpkg-deb -Zgzip --root-owner-group -b pkg demo-$1.deb >/dev/null; }
        PATH=$PATH:/usr/sbin:/sbin
        mkdir -p root/var/lib/dpkg/{info,updates,triggers} && touch root/var/lib/dpkg/{status,available}
        d() { dpkg --root=$PWD/root --force-not-root --log=/dev/null "$@"; }
        package 1 200; package 2 150
        d -i demo-1.deb; d -V demo; d -s demo | grep -q 'Version: 1'
        test $(ls root/usr/share/doc/demo | wc -l) = 201; test $(stat -c %a%h root/usr/bin/demo) = 47552
        d -i demo-2.deb; d -V demo; d -s demo | grep -q 'Version: 2'
        test $(ls root/usr/share/doc/demo | wc -l) = 151; grep -q 'version 2' root/etc/demo.conf
        diff -r pkg/usr root/usr
        d -r demo; test -e root/etc/demo.conf; test ! -e root/usr/share/doc/demo
        d -P demo; test ! -e root/etc/demo.conf; d --audit"#;
    on_a_mount(&[script]);
}

#[test]
fn fio_verifies() {
    let volume = Box::new(Ours::new(320 << 20, ""));
    let dir = volume.dir();
    for (engine, direct, how) in [
        ("sync", 0, "--rw=randwrite --bs=4k --fsync=64"),
        ("sync", 0, "--rw=randrw --bsrange=1k-70k --numjobs=2"),
        ("mmap", 0, "--rw=randwrite --bs=4k"),
        ("libaio", 1, "--rw=randwrite --bs=4k --iodepth=16"),
        ("libaio", 1, "--rw=write --bs=128k --iodepth=8 --fallocate=posix"),
        ("io_uring", 0, "--rw=randwrite --bs=4k --iodepth=16"),
        ("io_uring", 1, "--rw=randrw --bs=8k --iodepth=16 --fixedbufs"),
        ("psync", 0, "--rw=randwrite --bs=512 --size=1m --sync=dsync"),
        ("pvsync2", 0, "--rw=randwrite --bs=3k --size=2m --fallocate=keep"),
    ] {
        let common = format!(
            "--name={engine} --ioengine={engine} --direct={direct} --size=8m --verify=crc32c \
             --do_verify=1 --verify_fatal=1 --unlink=1 --directory={} {how}",
            dir.display()
        );
        run("fio", &common.split_whitespace().collect::<Vec<_>>());
    }
    volume.end();
}

/// The load of a file server, and thousands of small files, each durable or all at the end. dbench says
/// 'failed to create barrier semaphore' when another dbench of the host has the semaphore's key, and goes on
/// without it: this is not about the mount.
#[test]
fn dbench_and_fs_mark() {
    let dbench =
        "mkdir bench && out=$(dbench -t 3 -D bench -x --stat-check 4 2>&1) || { echo \"$out\"; \
                  false; }
        out=$(grep -v 'barrier semaphore' <<< \"$out\")
        not grep -iE 'error|failed|unable' <<< \"$out\"; grep -q Throughput <<< \"$out\"";
    // Without the methods that call sync(2), which syncs all file systems. A directory for each thread:
    // once in a thousand runs two threads begin with the same random seed and choose the same names.
    let fs_mark = "for method in 0 1 5; do
            mkdir -p m$method/{a,b,c,d}
            fs_mark -S $method -s 4096 -n 300 -t 4 -D 5 -k $(printf -- '-d %s ' m$method/*) > out
            not grep -iE 'error|fail' out; test $(find m$method -type f -size 4096c | wc -l) = 1200
        done; rm fs_log.txt";
    on_a_mount(&[dbench, fs_mark]);
}
