#!/bin/sh
# Unpacks a server from Debian's packages, with all that it depends on, for a machine that reaches
# no registry of images. It needs no privileges, and leaves this system's own apt alone.
#
#	unpack.sh PROGRAM SUITE DIR PACKAGE…
#
# creates DIR, with these in it:
#
#	root/       the file system; PROGRAM is the server's path in it, such as usr/bin/redis-server
#	run/        the programs next to PROGRAM, at the same paths: they run from there on any Linux of this architecture
#	Dockerfile  an image of root, which runs the server as the official images do
set -eu
umask 022
program=$1 suite=$2 dir=$3 package=$4
shift 3

for tool in apt-get apt-config dpkg-deb tar; do
	command -v $tool >/dev/null || { echo "no $tool here to fetch Debian's packages with" >&2; exit 1; }
done
for keys in /usr/share/keyrings/debian-archive-keyring.pgp /usr/share/keyrings/debian-archive-keyring.gpg ''; do
	[ ! -e "$keys" ] || break
done
[ -n "$keys" ] || { echo "Debian's packages cannot be verified here: install debian-archive-keyring" >&2; exit 1; }

# A Debian has chosen a mirror; others take the one for everybody.
. /etc/os-release
mirror=
[ "$ID" != debian ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $VERSION_CODENAME" | head -n 1)

# apt works in directories of its own, as on a system where nothing is installed. Of this system's
# configuration it takes only how to reach the outside, such as a proxy.
mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial"
cd "$dir"
: >apt/status
suites=$suite from=
if [ "$suite" = experimental ]; then # it has only what differs from sid, and is asked only where it is named
	suites="sid experimental" from=/experimental
fi
for s in $suites; do
	echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} $s main"
done >apt/sources.list
apt-config dump | grep '^Acquire::' | grep -v -e '::IndexTargets' -e '::Languages' -e '""' >apt/apt.conf || true
cat >>apt/apt.conf <<END
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::State "$PWD/apt";
Dir::State::status "$PWD/apt/status";
Dir::Cache "$PWD/apt";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
export APT_CONFIG="$PWD/apt/apt.conf" LC_ALL=C
apt-get -qq -o APT::Update::Error-Mode=any update
apt-get -qq -y --no-install-recommends --download-only install $(printf "%s$from " "$@")

for d in bin lib lib64 sbin; do
	mkdir -p root/usr/$d
	ln -s usr/$d root/$d # as Debian has it; older packages still have files in /lib
done
mkdir -m 1777 root/tmp
for deb in apt/archives/*.deb; do
	case $deb in *_all.deb) continue ;; esac # nothing for a processor to run
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C root --keep-directory-symlink --exclude='*perl*' --exclude='*/gconv' \
		--exclude='./usr/share/[!p]*' --exclude='./usr/share/p[!o]*' --exclude='*LLVM*' --exclude='*llvm*' --exclude='*libz3*' # but usr/share/postgresql
done
rm -r apt

# The packages' own loader finds their libraries, whatever libraries this system has. PostgreSQL finds the rest next to its
# programs' folder.
loader=$(cd root && echo usr/lib/*/ld-linux*.so.*)
bin=${program%/*}
up=$(echo "${bin%/*}" | sed 's#[^/]*#..#g')/..
mkdir -p "run/$bin"
ln -s ../../root/usr/share run/usr/share
ln -s "$up/root/${bin%/*}/lib" "run/${bin%/*}/lib"
for f in "root/$bin"/*; do
	cat >"run/$bin/${f##*/}" <<END
#!/bin/sh
root=\${0%/run/*}/root
exec "\$root/$loader" --library-path "\$root/${loader%/*}" --argv0 "\$0" "\$root/$bin/${f##*/}" "\$@"
END
done
chmod +x "run/$bin"/*
version=$("$dir/run/$program" --version | sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p') # Redis server v=7.0.15 sha=…
cat >Dockerfile <<END
FROM scratch
COPY root /
ENV PATH=/$bin:/usr/bin:/usr/sbin $(echo "${package%-server}" | tr a-z- A-Z_)_VERSION=$version
WORKDIR /data
CMD ["${program##*/}"]
END
