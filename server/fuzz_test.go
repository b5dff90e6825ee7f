package server_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/servertest"
)

// FuzzRequest: whatever is asked of the socket, it answers, and nothing that a
// client sends is ipamd's own fault (S3): no 500, and a refusal is an error
// object with a known code, whose message names the field when it is about
// one.
func FuzzRequest(f *testing.F) {
	s := speak(f, servertest.Start(f))
	for _, e := range api.Endpoints() {
		path := strings.NewReplacer("{id}", "0193f2a5-7c1e-7a44-9d0b-3a6a5a0c9b21", "{ip}", "10.8.64.7").Replace(e.Path)
		f.Add(e.Method, path, "", []byte(`{}`))
	}
	f.Add("POST", "/v1/leases", "", []byte(`{"sandbox":"a","uid":"b","attempt":2,"address":"10.8.64.9","bind_within":"5m","labels":{"k":"v"}}`))
	f.Add("POST", "/v1/leases", "", []byte(`{"sandbox":"a","family":"dual","pool":"default","interface":"eth1"}`))
	f.Add("POST", "/v1/leases", "", []byte(`{"sandbx":1}`))
	f.Add("POST", "/v1/leases", "force=1", []byte(`{"sandbox":"a"`))
	f.Add("POST", "/v1/leases/x/bind", "", []byte(`{"containers":[{"namespace":"d","id":"c"}],"netns":"/n","mac":"02:00:00:00:00:01"}`))
	f.Add("POST", "/v1/addresses/10.8.64.7/quarantine", "", []byte(`{"reason":"r"}`))
	f.Add("POST", "/v1/reconcile", "", []byte(`{"preview":true,"confirm":true}`))
	f.Add("GET", "/v1/leases", "sandbox=a&state=bound&pool=default", []byte(nil))
	f.Add("GET", "/v1/changes", "since=2026-01-31T14:05:00Z&limit=10&address=10.8.64.2", []byte(nil))
	f.Add("GET", "/v1/addresses/fe80::1%eth0", "", []byte(nil))
	f.Add("GET", "/v1/leases/\xff", "sandbox=%zz", []byte("\xff"))
	f.Add("GET", "//v1/../leases", ";", []byte("{"))
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://ipamd/", bytes.NewReader(body))
		if err != nil {
			t.Skip("no such method can be sent")
		}
		req.URL = &url.URL{Scheme: "http", Host: "ipamd", Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query}
		resp, err := s.http.Do(req)
		if err != nil {
			t.Skip("net/http refuses to send it: ", err)
		}
		defer resp.Body.Close()
		var answer bytes.Buffer
		if _, err := answer.ReadFrom(resp.Body); err != nil {
			t.Fatalf("%s %q %q: the answer breaks off: %v", method, path, query, err)
		}
		text := answer.Bytes()
		if resp.StatusCode == http.StatusInternalServerError {
			t.Fatalf("%s %q %q %q: %s", method, path, query, body, text)
		}
		if resp.StatusCode < 400 || method == "HEAD" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
			return
		}
		var refused api.Error
		if err := json.Unmarshal(text, &refused); err != nil || !utf8.Valid(text) {
			if resp.StatusCode == http.StatusServiceUnavailable {
				return // readyz and healthz answer with what they are about
			}
			t.Fatalf("%d %q is no error object: %v", resp.StatusCode, text, err)
		}
		if refused.Code == "" || refused.Code == api.Internal || refused.Message == "" {
			t.Fatalf("%s %q %q %q: %d %s", method, path, query, body, resp.StatusCode, text)
		}
		if refused.Code == api.InvalidArgument && resp.StatusCode == http.StatusBadRequest && refused.Details["field"] == nil {
			t.Fatalf("%s %q %q %q: which field? %s", method, path, query, body, text)
		}
	})
}
