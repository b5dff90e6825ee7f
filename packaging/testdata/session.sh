#!/usr/bin/env bash
#
# What an administrator does with the package over the years, on a copy of this
# system that is never written through. Runs in namespaces of its own, of mounts
# and of the network;
# $1 is the package, $2 an empty folder.
set -euxo pipefail
exec 2>&1

world=$2
mount -t tmpfs -o size=512m world "$world"
mkdir "$world"/{up,work,root}
mount -t overlay -o "lowerdir=/,upperdir=$world/up,workdir=$world/work" world "$world/root"
root=$world/root
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs run "$root/run" # no systemd runs in there
cp "$1" "$root/new.deb"
rm -f "$root/var/lib/man-db/auto-update" # an index of every manual, at each step

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
fails() { ! "$@"; }
enabled() { inside systemctl --root=/ is-enabled "$1"; }

if inside dpkg -s ipamd >/dev/null; then
	inside dpkg --purge ipamd >/dev/null
fi

# The package of before: another version, another default.
dpkg-deb -R "$root/new.deb" "$world/old"
sed -i 's/^Version: .*/Version: 0.0.0~0/' "$world/old/DEBIAN/control"
sed -i '1i # As it was.' "$world/old/etc/ipamd/ipamd.toml"
dpkg-deb -Znone -b "$world/old" "$root/old.deb"

# Installed: a group, folders, both units enabled, programs that run.
inside dpkg -i old.deb
inside getent group ipamd
[[ $(inside stat -c '%a %U %G' /var/lib/ipamd) == '700 root root' ]]
[[ $(inside stat -c '%a %U %G' /run/ipamd) == '755 root ipamd' ]]
[[ $(enabled ipamd.socket) == enabled ]]
[[ $(enabled ipamd.service) == enabled ]]
inside ipamd config >/dev/null
inside ipamctl status && exit 1 || [[ $? == 7 ]] # not running

# Upgraded: a configuration that nobody edited is the new one; what an
# administrator disabled stays disabled; the book stays.
echo book >"$root/var/lib/ipamd/book.db"
inside systemctl --root=/ disable ipamd.service
inside dpkg -i new.deb
fails grep -q 'As it was' "$root/etc/ipamd/ipamd.toml"
[[ $(enabled ipamd.service || true) == disabled ]]
[[ $(enabled ipamd.socket || true) == disabled ]] # it goes with the service
[[ $(cat "$root/var/lib/ipamd/book.db") == book ]]

# One that was edited stays.
sed -i "s/^#level = 'info'/level = 'debug'/" "$root/etc/ipamd/ipamd.toml"
inside ipamd config | grep -q "^level = 'debug'"
inside dpkg --force-confold -i old.deb
inside dpkg --force-confold -i new.deb
inside ipamd config | grep -q "^level = 'debug'"

# Removed: the programs go, and the rules of nftables; the book, the configuration and
# the rules of others stay.
nft 'add table bridge ipamd; add table bridge ipamd-idle; add table netdev ipamd-wake; add table inet ipamd'
inside dpkg -r ipamd
[[ $(nft list tables) == 'table inet ipamd' ]]
[[ ! -e $root/usr/sbin/ipamd && -e $root/etc/ipamd/ipamd.toml ]]
[[ $(cat "$root/var/lib/ipamd/book.db") == book ]]

# Back, and away for good: nothing is left.
inside dpkg --force-confold -i new.deb
[[ $(cat "$root/var/lib/ipamd/book.db") == book ]]
inside dpkg --purge ipamd
for path in /etc/ipamd /var/lib/ipamd /usr/sbin/ipamd /usr/lib/systemd/system/ipamd.service; do
	[[ ! -e $root$path ]]
done

# The same where the state is a mount of its own (F32): it is emptied and stays.
inside dpkg -i new.deb
mount -t tmpfs state "$root/var/lib/ipamd"
echo book >"$root/var/lib/ipamd/book.db"
mkdir "$root/var/lib/ipamd/lost+found"
inside dpkg --purge ipamd
[[ -z $(ls -A "$root/var/lib/ipamd") ]]
mountpoint -q "$root/var/lib/ipamd"
umount "$root/var/lib/ipamd"
fails inside dpkg -s ipamd
fails grep -q ipamd <<<"$(find "$root"/etc/systemd "$root"/var/lib/systemd -name '*ipamd*')"
