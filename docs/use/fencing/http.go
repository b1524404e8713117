package fencing

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// The headers that name a holder, the owner percent-encoded. They are a precondition, as
// If-Match is.
const (
	FenceHeader = "Lock-Fence"
	OwnerHeader = "Lock-Owner"
)

// NewHandler returns a store, in memory, behind GET and PUT /items/{id}. It answers
// 200 OK with the value to a GET and 204 No Content to a PUT. It refuses with 412
// Precondition Failed a stale fence, with 428 Precondition Required a request without a
// holder, and with 400 Bad Request a fence that no lock has issued.
func NewHandler() http.Handler {
	m := &memory{items: map[string]item{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		m.serve(w, r, nil)
	})
	mux.HandleFunc("PUT /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		value := string(body)
		m.serve(w, r, &value)
	})
	return mux
}

func (m *memory) serve(w http.ResponseWriter, r *http.Request, value *string) {
	w.Header().Set("Cache-Control", "no-store") // a read from a cache raises nothing
	number, owner := r.Header.Get(FenceHeader), r.Header.Get(OwnerHeader)
	if number == "" || owner == "" {
		http.Error(w, FenceHeader+" and "+OwnerHeader+" are required", http.StatusPreconditionRequired)
		return
	}
	fence, err := strconv.ParseUint(number, 10, 64)
	owner, unescaped := url.QueryUnescape(owner)
	h := Holder{Fence: fence, Owner: owner}
	if err != nil || unescaped != nil || h.check() != nil {
		http.Error(w, FenceHeader+": allowed are 1 … 2^53-1; "+OwnerHeader+": allowed is what is percent-encoded", http.StatusBadRequest)
		return
	}
	now, err := m.touch(r.PathValue("id"), h, value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
		return
	}
	if value != nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	io.WriteString(w, now) //nolint:errcheck // a client that is gone learns it from that
}
