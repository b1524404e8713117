package redistest

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// defaultPackage is what is unpacked when nothing else is named: the same version as defaultImage.
const defaultPackage = "redis-server@bookworm"

// packageOf splits package@suite. The program is called as the package.
func packageOf(s string) (p machine.Package) {
	p.Name, p.Suite, _ = strings.Cut(s, "@")
	p.Program = "usr/bin/" + p.Name
	return p
}

// packaged are the editions that Debian packages, in which suite: where no registry answers,
// they come from there. A suite that is not yet stable moves on to other versions; to start a
// server is an error then, which says so.
var packaged = []struct{ edition, pkg string }{
	{"redis-7.0", "redis-server@bookworm"},
	{"redis-8.0", "redis-server@trixie"},
	{"redis-8.6", "redis-server@experimental"},
	{"valkey-8.1", "valkey-server@trixie"},
	{"valkey-9.1", "valkey-server@forky"},
}

// Editions are those that are available with a registry and without, by the names that
// REDIS_SERVER takes: what "make editions" goes through.
func Editions() []string {
	var all []string
	for _, p := range packaged {
		all = append(all, p.edition)
	}
	return all
}

// edition is a product and its version, of which a server may have more digits.
type edition struct {
	product string // redis, valkey
	version string
}

var editionName = regexp.MustCompile(`^(redis|valkey)-(\d+(?:\.\d+){0,2})$`)

// parseEdition splits product-version. "" is no edition.
func parseEdition(s string) (e edition, err error) {
	if s == "" {
		return e, nil
	}
	m := editionName.FindStringSubmatch(s)
	if m == nil {
		return e, fmt.Errorf("redistest: REDIS_SERVER=%q: want redis-version or valkey-version, such as %s", s, strings.Join(Editions(), ", "))
	}
	return edition{product: m[1], version: m[2]}, nil
}

func (e edition) String() string {
	if e == (edition{}) {
		return ""
	}
	return e.product + "-" + e.version
}

// image is the official one.
func (e edition) image() string {
	switch e.product {
	case "":
		return ""
	case "valkey":
		return "valkey/valkey:" + e.version
	}
	return e.product + ":" + e.version
}

// pkg is Debian's package, if there is one.
func (e edition) pkg() string {
	for _, p := range packaged {
		if p.edition == e.String() {
			return p.pkg
		}
	}
	return ""
}

// is compares with what a server says of itself: "Valkey 8.1.1" is valkey-8.1.
func (e edition) is(said string) bool {
	product, version, _ := strings.Cut(said, " ")
	return strings.ToLower(product) == e.product && strings.HasPrefix(version+".", e.version+".")
}

// wrong is the error of a server that is another one than was asked for. what is where it
// comes from.
func (e edition) wrong(said, what string) error {
	if e == (edition{}) || e.is(said) {
		return nil
	}
	return fmt.Errorf("redistest: REDIS_SERVER=%s was asked for, but %s has answered (%s). "+
		"If Debian's packages have moved on to another version, pull the image %s, or ask for what there is",
		e, said, what, e.image())
}
