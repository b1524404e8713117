package fencing

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// HTTP is a client of a store behind HTTP, such as NewHandler's.
type HTTP struct {
	URL    string       // without /items
	Client *http.Client // nil: http.DefaultClient
}

// Read returns the value of id, "" if it has none. From now on earlier holders are
// refused.
func (s HTTP) Read(ctx context.Context, id string, h Holder) (value string, err error) {
	return s.touch(ctx, http.MethodGet, id, "", h, http.StatusOK)
}

// Write sets the value of id. After any error but ErrStale, and that of a Holder which is
// none, nobody knows whether it took effect.
func (s HTTP) Write(ctx context.Context, id, value string, h Holder) error {
	_, err := s.touch(ctx, http.MethodPut, id, value, h, http.StatusNoContent)
	return err
}

func (s HTTP) touch(ctx context.Context, method, id, body string, h Holder, done int) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.URL, "/")+"/items/"+url.PathEscape(id), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set(FenceHeader, strconv.FormatUint(h.Fence, 10))
	request.Header.Set(OwnerHeader, url.QueryEscape(h.Owner)) // outer spaces would be cut off
	// A redirect may turn a PUT into a GET, whose answer says nothing of the write.
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if s.Client != nil {
		client.Transport, client.Jar, client.Timeout = s.Client.Transport, s.Client.Jar, s.Client.Timeout
	}
	reply, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	switch {
	case err != nil:
		return "", err
	case reply.StatusCode == http.StatusPreconditionFailed:
		return "", fmt.Errorf("%q, fence %d: %w", id, h.Fence, ErrStale)
	case reply.StatusCode != done:
		return "", fmt.Errorf("%s %q: %s: %s", method, id, reply.Status, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}
