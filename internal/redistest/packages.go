package redistest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// fetchLimit bounds the download of a package and what it depends on, some 30 MB.
const fetchLimit = 5 * time.Minute

// debianMirror is Debian's canonical one, for hosts whose own sources have no Debian.
const debianMirror = "http://deb.debian.org/debian"

// debianSuites are known to be Debian's also on a host that is something else.
var debianSuites = []string{"bullseye", "bookworm", "trixie", "forky", "duke", "sid", "stable", "testing", "unstable"}

// distroPkg is a package of a distribution, and where to get it.
type distroPkg struct {
	name      string // redis-server, valkey-server: also the name of the program
	suite     string
	distro    string // "Debian", for people
	arch      string // as dpkg calls it
	hostID    string // ID and VERSION_CODENAME of os-release(5)
	hostSuite string
	source    aptSource // set by locate
}

type aptSource struct {
	uri        string
	components []string
	file       string   // the host's entry
	keys       []string // keyrings
}

func (p *distroPkg) String() string {
	return fmt.Sprintf("package %s of %s %s", p.name, p.distro, p.suite)
}

// from is String for something that is known to be there.
func (p *distroPkg) from() string { return fmt.Sprintf("%s %s packages", p.distro, p.suite) }

func (p *distroPkg) foreign() bool { return runtime.GOOS != "linux" }

var packageName = regexp.MustCompile(`^([a-z0-9][a-z0-9+.-]*-server)(?:@([a-z][a-z0-9.-]*))?$`)

// parsePackage splits package[@suite]. Without a suite it is the host's own.
func parsePackage(s string) (p struct{ name, suite string }, err error) {
	m := packageName.FindStringSubmatch(cmp.Or(s, DefaultPackage))
	if m == nil {
		return p, fmt.Errorf("redistest: REDIS_PACKAGE=%q: want package[@suite], such as redis-server, redis-server@bookworm, valkey-server@trixie", s)
	}
	p.name, p.suite = m[1], m[2]
	return p, nil
}

// resolvePackage finds out what the package is on this machine, in milliseconds.
func resolvePackage(ctx context.Context, s string) (*distroPkg, error) {
	want, err := parsePackage(s)
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		return nil, errors.New("no Debian packages here")
	}
	release, err := osRelease()
	if err != nil {
		return nil, err
	}
	p := &distroPkg{name: want.name, distro: release["ID"], hostID: release["ID"], hostSuite: release["VERSION_CODENAME"]}
	if p.suite = cmp.Or(want.suite, p.hostSuite); p.suite == "" {
		return nil, errors.New("this distribution tells no code name: name a suite, as in REDIS_PACKAGE=redis-server@bookworm")
	}
	if p.hostID == "debian" || p.suite != p.hostSuite && slices.Contains(debianSuites, p.suite) {
		p.distro = "Debian"
	}
	arch, err := output(ctx, nil, "dpkg", "--print-architecture")
	if err != nil {
		return nil, err
	}
	p.arch = strings.TrimSpace(arch)
	return p, nil
}

// locate finds out where the package could be fetched from.
func (p *distroPkg) locate(ctx context.Context) error {
	for _, tool := range []string{"apt-get", "apt-config", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("no %s here to fetch packages with", tool)
		}
	}
	// One format for both syntaxes of source lists: apt has parsed them.
	list, err := output(ctx, nil, "apt-get", "indextargets", "--format",
		"$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(SOURCESENTRY)", "Created-By: Packages", "Target-Of: deb")
	if err != nil {
		return err
	}
	if p.source, err = pickSource(list, p); err != nil {
		return err
	}
	return p.findKeys()
}

// pickSource derives the mirror of p's suite from the host's apt sources: it is the one
// from which the host takes its own release. Only the release itself is used, without
// its updates: one index instead of three, for a server that nobody else can reach.
func pickSource(targets string, p *distroPkg) (aptSource, error) {
	var src aptSource
	for line := range strings.Lines(targets) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 4 || f[1] != p.hostSuite {
			continue
		}
		if src.uri == "" {
			src.uri = f[0]
			src.file, _, _ = strings.Cut(f[3], ":") // and its line
		}
		if src.uri == f[0] && !slices.Contains(src.components, f[2]) {
			src.components = append(src.components, f[2])
		}
	}
	switch {
	case p.distro != "Debian" && src.uri != "":
		return src, nil
	case p.distro != "Debian":
		return src, fmt.Errorf("apt has no source for %s", p.hostSuite)
	case p.hostID == "debian" && src.uri != "":
		src.components = []string{"main"}
		return src, nil
	}
	return aptSource{uri: debianMirror, components: []string{"main"}}, nil
}

var signedBy = regexp.MustCompile(`(?im)\bsigned-by[:=][ \t]*([^\]\n]+)`)

// findKeys finds the keys that sign the source: the distribution's, and those that the
// host's entry for it names. apt does not tell what they are, only where the entry is.
// Without any, apt asks those that it trusts for everything.
func (p *distroPkg) findKeys() error {
	id := p.hostID
	if p.distro == "Debian" {
		id = "debian"
	}
	for _, ext := range []string{".gpg", ".pgp"} {
		if k := "/usr/share/keyrings/" + id + "-archive-keyring" + ext; exists(k) {
			p.source.keys = append(p.source.keys, k)
			break
		}
	}
	if b, err := os.ReadFile(p.source.file); err == nil {
		for _, m := range signedBy.FindAllStringSubmatch(string(b), -1) {
			for _, k := range strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune(" \t\r,", r) }) {
				if path.IsAbs(k) && exists(k) && !slices.Contains(p.source.keys, k) {
					p.source.keys = append(p.source.keys, k)
				}
			}
		}
	}
	if len(p.source.keys) == 0 && id != p.hostID {
		return errors.New("Debian's packages cannot be verified here: install debian-archive-keyring")
	}
	return nil
}

func osRelease() (map[string]string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return nil, fmt.Errorf("which distribution this is cannot be told: %w", err)
	}
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			m[k] = strings.Trim(v, `"'`)
		}
	}
	return m, nil
}

// unpacked is a server with the libraries it needs and nothing else, in the cache.
type unpacked struct {
	Package string `json:"package"`
	Deb     string `json:"deb"`     // Debian's version
	Version string `json:"version"` // the program's
	Loader  string `json:"loader"`  // the ELF interpreter, as the program names it
	LibDir  string `json:"lib_dir"`
	Hash    string `json:"hash"` // of the tar
	dir     string
}

func (u *unpacked) root() string { return filepath.Join(u.dir, "root") }

func (u *unpacked) product() string { return productOf(u.Package) + " " + u.Version }

func productOf(name string) string {
	name = strings.TrimSuffix(name, "-server")
	return strings.ToUpper(name[:1]) + name[1:]
}

// command runs the server on any system of this architecture, whatever C library it
// has: with the loader and the libraries that the package was built for.
func (u *unpacked) command() []string {
	r := u.root()
	return []string{filepath.Join(r, u.Loader), "--library-path", filepath.Join(r, u.LibDir), filepath.Join(r, "usr/bin", u.Package)}
}

func (p *distroPkg) key() string { return p.name + "@" + p.suite + "-" + p.arch }

// unpacked finds what an earlier unpack has left.
func (c cache) unpacked(p *distroPkg) (*unpacked, bool) {
	u := &unpacked{dir: c.path("packages", p.key())}
	b, err := os.ReadFile(filepath.Join(u.dir, "manifest.json"))
	if err != nil || json.Unmarshal(b, u) != nil || u.Package != p.name {
		return nil, false
	}
	if _, err := os.Stat(filepath.Join(u.root(), u.Loader)); err != nil {
		return nil, false
	}
	return u, true
}

// unpack fetches and unpacks the package, or takes what is there. It needs no
// privileges and leaves the system's own apt alone: apt works in a state directory of
// its own, as on a machine where nothing is installed, and verifies signatures as ever.
func (c cache) unpack(ctx context.Context, p *distroPkg, log io.Writer) (*unpacked, error) {
	unlock, err := c.lock(ctx, "packages/"+p.key())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if u, ok := c.unpacked(p); ok {
		return u, nil // built by somebody else while we waited, perhaps
	}
	// We hold the lock, so these are of processes that were killed.
	old, _ := filepath.Glob(c.path("packages", ".work-"+p.key()+"-*"))
	for _, dir := range append(old, c.path("packages", p.key())) {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("redistest: %w", err)
		}
	}
	work, err := os.MkdirTemp(c.path("packages"), ".work-"+p.key()+"-")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	defer os.RemoveAll(work)

	fmt.Fprintf(log, "redis: fetching %s\n", p)
	began := time.Now()
	limit, cancel := context.WithTimeoutCause(ctx, fetchLimit, fmt.Errorf("not done within %v", fetchLimit))
	defer cancel()
	debs, err := p.fetch(limit, work)
	if err != nil {
		return nil, err
	}
	tree := filepath.Join(work, "tree")
	for _, deb := range debs {
		if strings.HasSuffix(deb, "_all.deb") {
			continue // holds nothing for a processor to run
		}
		if _, err := output(limit, nil, "dpkg-deb", "-x", deb, tree); err != nil {
			return nil, err
		}
	}
	u, err := p.assemble(tree, filepath.Join(work, "new"))
	if err != nil {
		return nil, err
	}
	if u.Deb, u.Version, err = versionsOf(p.name, debs); err != nil {
		return nil, err
	}
	sum := sha256.New()
	if err := u.tar(sum); err != nil {
		return nil, err
	}
	u.Hash = hex.EncodeToString(sum.Sum(nil))
	manifest, err := json.MarshalIndent(u, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "manifest.json"), append(manifest, '\n'), 0o644); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	final := c.path("packages", p.key())
	if err := os.Rename(u.dir, final); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	u.dir = final
	fmt.Fprintf(log, "redis: %s unpacked in %v\n", u.product(), time.Since(began).Round(100*time.Millisecond))
	return u, nil
}

// fetch downloads the package and everything it depends on.
func (p *distroPkg) fetch(ctx context.Context, work string) ([]string, error) {
	archives := filepath.Join(work, "cache", "archives")
	for _, dir := range []string{filepath.Join(work, "state", "lists", "partial"), filepath.Join(archives, "partial")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("redistest: %w", err)
		}
	}
	config, err := aptConfig(ctx, work)
	if err != nil {
		return nil, err
	}
	sources := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\nArchitectures: %s\n",
		p.source.uri, p.suite, strings.Join(p.source.components, " "), p.arch)
	if len(p.source.keys) > 0 {
		sources += "Signed-By: " + strings.Join(p.source.keys, " ") + "\n"
	}
	for name, text := range map[string]string{"apt.conf": config, "test.sources": sources, "status": ""} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("redistest: %w", err)
		}
	}
	env := append(os.Environ(), "APT_CONFIG="+filepath.Join(work, "apt.conf"), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	// Without the mode, an index that cannot be fetched is only a warning.
	if _, err := output(ctx, env, "apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update"); err != nil {
		return nil, fmt.Errorf("the package lists of %s %s cannot be fetched: %w", p.distro, p.suite, err)
	}
	if _, err := output(ctx, env, "apt-get", "-q", "-y", "--download-only", "--no-install-recommends", "install", p.name); err != nil {
		return nil, fmt.Errorf("%s cannot be fetched: %w", p, err)
	}
	debs, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err == nil && len(debs) == 0 {
		err = errors.New("apt-get has downloaded nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: %w", p, err)
	}
	return debs, nil
}

// aptConfig is a configuration that knows nothing of the system's but how to reach the
// outside: proxies, credentials, limits. Options on the command line would not do, since
// the system's hooks, which tidy up the system's caches, would run.
func aptConfig(ctx context.Context, work string) (string, error) {
	dump, err := output(ctx, nil, "apt-config", "dump")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(dump) {
		outside := strings.HasPrefix(line, "Acquire::") && !strings.HasPrefix(line, "Acquire::IndexTargets") && !strings.HasPrefix(line, "Acquire::Languages")
		if outside && !strings.Contains(line, `""`) {
			b.WriteString(line)
		}
	}
	set := func(k, v string) { fmt.Fprintf(&b, "%s %q;\n", k, v) }
	for _, k := range []string{"main", "parts", "sourceparts", "preferences", "preferencesparts"} {
		set("Dir::Etc::"+k, os.DevNull)
	}
	set("Dir::Etc::sourcelist", filepath.Join(work, "test.sources"))
	set("Dir::State", filepath.Join(work, "state"))
	set("Dir::State::status", filepath.Join(work, "status"))
	set("Dir::Cache", filepath.Join(work, "cache"))
	set("Acquire::Languages", "none")
	set("APT::Install-Recommends", "false")
	// The user to which apt steps down as root may not look into our directory.
	set("APT::Sandbox::User", "root")
	set("Debug::NoLocking", "true") // nobody else works here
	return b.String(), nil
}

// output runs a tool and returns its standard output. The error has what it complained of.
func output(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	cmd.WaitDelay = 5 * time.Second // apt's helpers may outlive it
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.Join(strings.Fields(errs.String()), " "))
	}
	return out.String(), nil
}

// versionsOf finds the package among the files: redis-server_5%3a7.0.15-1~deb12u7_amd64.deb.
func versionsOf(name string, debs []string) (deb, version string, err error) {
	for _, f := range debs {
		parts := strings.Split(filepath.Base(f), "_")
		if len(parts) != 3 || parts[0] != name {
			continue
		}
		if deb, err = url.PathUnescape(parts[1]); err != nil {
			break
		}
		version = deb[strings.IndexByte(deb, ':')+1:] // the epoch
		if i := strings.LastIndexByte(version, '-'); i > 0 {
			version = version[:i] // Debian's revision
		}
		version, _, _ = strings.Cut(version, "+") // and what it left out
		return deb, version, nil
	}
	return "", "", fmt.Errorf("redistest: no %s among the packages that were fetched", name)
}

// assemble copies from the unpacked packages what the server needs: programs, their
// libraries, and the loader. The rest, Perl and what else the maintainers' scripts of
// an installation need, is four fifths.
func (p *distroPkg) assemble(tree, dir string) (*unpacked, error) {
	u := &unpacked{Package: p.name, dir: dir}
	index, err := indexLibraries(tree)
	if err != nil {
		return nil, err
	}
	bin := path.Join("usr/bin", p.name)
	info, err := readELF(tree, bin)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	if info.loader == "" {
		return nil, fmt.Errorf("%s names no loader", p)
	}
	u.Loader = strings.TrimPrefix(info.loader, "/")
	libc, ok := index["libc.so.6"]
	if !ok {
		return nil, fmt.Errorf("%s comes without a C library", p)
	}
	// The directory of its architecture: the loader looks there by itself.
	u.LibDir = path.Join("usr/lib", path.Base(path.Dir(libc)))

	files := map[string]string{bin: bin}
	if cli := path.Join("usr/bin", strings.TrimSuffix(p.name, "-server")+"-cli"); inTree(tree, cli) {
		files[cli] = cli // for people who look into a container
	}
	var todo []string
	for f := range files {
		todo = append(todo, f)
	}
	slices.Sort(todo)
	for len(todo) > 0 {
		info, err := readELF(tree, todo[0])
		if err != nil {
			return nil, err
		}
		todo = todo[1:]
		for _, lib := range info.needs {
			from, ok := index[lib]
			if !ok {
				return nil, fmt.Errorf("redistest: %s needs %s, which none of its packages has", p, lib)
			}
			if to := path.Join(u.LibDir, lib); files[to] == "" {
				files[to] = from
				todo = append(todo, from)
			}
		}
	}
	loader, ok := index[path.Base(u.Loader)]
	if !ok {
		return nil, fmt.Errorf("redistest: %s comes without its loader %s", p, u.Loader)
	}
	files[u.Loader] = loader
	for to, from := range files {
		if err := copyFile(tree, from, filepath.Join(u.root(), to)); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// indexLibraries maps the names of shared libraries to where they are.
func indexLibraries(tree string) (map[string]string, error) {
	index := map[string]string{}
	err := filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(d.Name(), ".so") {
			return err
		}
		rel, err := filepath.Rel(tree, p)
		if err != nil {
			return err
		}
		// The shallowest: deeper ones are variants for special processors, and plug-ins.
		old, ok := index[d.Name()]
		if !ok || strings.Count(rel, "/") < strings.Count(old, "/") {
			index[d.Name()] = rel
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return index, nil
}

type elfInfo struct {
	loader string
	needs  []string
}

func readELF(tree, name string) (elfInfo, error) {
	p, err := resolveIn(tree, name)
	if err != nil {
		return elfInfo{}, err
	}
	f, err := elf.Open(p)
	if err != nil {
		return elfInfo{}, fmt.Errorf("redistest: %s: %w", name, err)
	}
	defer f.Close()
	info := elfInfo{}
	if info.needs, err = f.ImportedLibraries(); err != nil {
		return info, fmt.Errorf("redistest: %s: %w", name, err)
	}
	for _, prog := range f.Progs {
		if prog.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(prog.Open())
		if err != nil {
			return info, fmt.Errorf("redistest: %s: %w", name, err)
		}
		info.loader = string(bytes.TrimRight(b, "\x00"))
	}
	return info, nil
}

func inTree(tree, name string) bool {
	_, err := resolveIn(tree, name)
	return err == nil
}

// resolveIn follows symbolic links as if tree were the root of the system, also where
// the packages count on /lib being a link to /usr/lib.
func resolveIn(tree, name string) (string, error) {
	rel := path.Clean("/" + name)
	for range 16 {
		p := filepath.Join(tree, rel)
		st, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(rel, "/usr/") {
			rel = "/usr" + rel
			if st, err = os.Lstat(filepath.Join(tree, rel)); err == nil {
				p = filepath.Join(tree, rel)
			}
		}
		if err != nil {
			return "", fmt.Errorf("redistest: %w", err)
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			return p, nil
		}
		to, err := os.Readlink(p)
		if err != nil {
			return "", fmt.Errorf("redistest: %w", err)
		}
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(rel), to)
		}
		rel = path.Clean("/" + to)
	}
	return "", fmt.Errorf("redistest: %s: too many symbolic links", name)
}

func copyFile(tree, name, to string) error {
	from, err := resolveIn(tree, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}

// tar writes the file system of an image, the same bytes for the same content.
func (u *unpacked) tar(w io.Writer) error {
	t := tar.NewWriter(w)
	dirs := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o1777},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
	}
	for i := range dirs {
		if err := t.WriteHeader(&dirs[i]); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	// WalkDir goes in lexical order.
	err := filepath.WalkDir(u.root(), func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == u.root() {
			return err
		}
		rel, err := filepath.Rel(u.root(), p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", Mode: 0o755})
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: rel, Mode: 0o755, Size: st.Size()}); err != nil {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
	if err := errors.Join(err, t.Close()); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}
