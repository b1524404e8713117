package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/machine"
)

// An Authority issues certificates, for tests of TLS.
type Authority struct {
	PEM []byte // its own certificate: who trusts it trusts what it issues

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one that nobody trusts yet.
func NewAuthority() (*Authority, error) {
	a := &Authority{cert: &x509.Certificate{
		Subject:               pkix.Name{CommonName: "redistest"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}}
	cert, key, err := a.sign(a.cert)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(cert)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	a.PEM, a.cert, a.key = cert, parsed, key
	return a, nil
}

// Issue makes a certificate for a server on this machine, or for a client, of that name,
// which ends then. Both are PEM.
func (a *Authority) Issue(name string, ends time.Time) (cert, key []byte, err error) {
	cert, private, err := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.ParseIP(machine.Loopback)},
		NotAfter:    ends,
	})
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("redistest: %w", err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// sign completes a certificate with a new key; one without an end is good for a day.
func (a *Authority) sign(c *x509.Certificate) (cert []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("redistest: %w", err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, fmt.Errorf("redistest: %w", err)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().AddDate(0, 0, 1)
	}
	c.NotBefore = time.Now().AddDate(0, 0, -2)
	signer := a.key
	if signer == nil { // its own
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("redistest: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, nil
}

// OwnTLS is Own with TLS at addr, next to the plain Addr. Server and clients need certificates
// of a. Where that is impossible the test is skipped.
func OwnTLS(t testing.TB, a *Authority, c Config) (s *Server, addr string) {
	t.Helper()
	f := farm(t)
	cert, key, err := a.Issue("server", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	port, release, err := f.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	c.Files = maps.Clone(c.Files)
	if c.Files == nil {
		c.Files = map[string][]byte{}
	}
	c.Files["ca.crt"], c.Files["server.crt"], c.Files["server.key"] = a.PEM, cert, key
	c.Args = slices.Concat(c.Args, []string{
		"--tls-port", strconv.Itoa(port), "--tls-auth-clients", "yes",
		"--tls-ca-cert-file", "ca.crt", "--tls-cert-file", "server.crt", "--tls-key-file", "server.key",
	})
	s, err = f.Start(t.Context(), c)
	if err != nil && strings.Contains(err.Error(), "Bad directive") && strings.Contains(err.Error(), "tls-port") {
		err = fmt.Errorf("this server was built without TLS: %w: %w", ErrImpossible, err)
	}
	must(t, f, err)
	end(t, s.Stop)
	return s, net.JoinHostPort(machine.Loopback, strconv.Itoa(port))
}

// OwnSocket is Own with a Unix socket, whose path it returns, next to Addr. Where that is
// impossible the test is skipped.
func OwnSocket(t testing.TB, name string, c Config) (s *Server, path string) {
	t.Helper()
	if c.Files == nil {
		c.Files = map[string][]byte{}
	}
	c.Args = slices.Concat(c.Args, []string{"--unixsocket", name, "--unixsocketperm", "777"})
	s = Own(t, c)
	return s, s.Dir() + "/" + name
}
