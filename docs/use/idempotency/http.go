package idempotency

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
)

// MaxBody is how many bytes a request may have: it is read before its handler runs.
const MaxBody = 1 << 20

// response is what a handler has answered.
type response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Handler does each POST and PATCH once for each Idempotency-Key of a caller, and passes other methods on. caller
// names the sender of the request, as your authentication knows it, in at most 250 bytes; keys of two callers are
// different keys.
//
// The whole answer of next is kept, and then sent: it cannot be a stream. An answer of 503 is sent and not kept: with
// it next says that it has done nothing, and that the request may come again.
func (o *Once) Handler(caller func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.Method != http.MethodPatch {
			next.ServeHTTP(w, r)
			return
		}
		id, err := idOf(caller(r), r.Header.Values("Idempotency-Key"))
		if err != nil {
			refuse(w, r, err)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), status)
			return
		}
		request := fingerprint(r.Method, r.URL.RequestURI(), string(body))
		answer, err := do(r.Context(), o, id, request, func(ctx context.Context) (response, bool) {
			once := r.WithContext(ctx)
			once.Body = io.NopCloser(bytes.NewReader(body))
			recorded := recorder{header: http.Header{}}
			next.ServeHTTP(&recorded, once)
			recorded.WriteHeader(http.StatusOK) // if it has not said anything else
			return recorded.response, recorded.Status != http.StatusServiceUnavailable
		})
		if err != nil {
			refuse(w, r, err)
			return
		}
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.Status)
		w.Write(answer.Body) //nolint:errcheck // a caller that is gone asks again
	})
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	no := refusalFor(r.Context(), err)
	if no.status == http.StatusConflict || no.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, no.text, no.status)
}

// recorder is a ResponseWriter that keeps the response.
type recorder struct {
	response
	header http.Header // as the handler sees it; what comes after WriteHeader has no effect
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.Status == 0 && status >= http.StatusOK { // the caller does not get what is merely informational
		r.Status, r.response.Header = status, r.header.Clone()
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.Body = append(r.Body, p...)
	return len(p), nil
}
