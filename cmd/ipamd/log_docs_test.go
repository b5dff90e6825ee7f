package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/changelog"
	"github.com/ipamd/ipamd/internal/doctest"
	"github.com/ipamd/ipamd/ipam"
)

// rooms are the folders of what the daemon is made of.
func rooms(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}`, ".").Output()
	if err != nil {
		t.Fatal("list what the daemon is made of: ", err)
	}
	return strings.Fields(string(out))
}

// notKeys are other spellings of keys: a person who searches for an address does
// not search twice.
var notKeys = map[string]string{"address": "addr", "ip": "addr", "error": "err", "lease_id": "lease", "revision": "rev", "why": "reason"}

// A logCall is one line that the daemon may write.
type logCall struct {
	level, message string
	keys           []string
	at             token.Position
}

// logCalls finds the calls of a logger in a room's code: x.Log.Warn("…", "key",
// value), or log.Warn. What is logged has its message and keys in the call.
func logCalls(t *testing.T, room string) (calls []logCall) {
	t.Helper()
	entries, err := os.ReadDir(room)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, filepath.Join(room, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) || !isLogger(method.X) {
				return true
			}
			c := logCall{level: strings.ToLower(method.Sel.Name), at: files.Position(call.Pos())}
			for i, arg := range call.Args {
				if i%2 == 0 && i > 0 {
					continue // a value
				}
				word, ok := literal(arg)
				if !ok {
					t.Errorf("%s: its message and its keys must stand in the call", c.at)
					return true
				}
				if i == 0 {
					c.message = word
				} else {
					c.keys = append(c.keys, word)
				}
			}
			calls = append(calls, c)
			return true
		})
	}
	return calls
}

func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "log")
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log")
	}
	return false
}

func literal(x ast.Expr) (string, bool) {
	lit, ok := x.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	word, err := strconv.Unquote(lit.Value)
	return word, err == nil
}

var anyPrefix = netip.MustParsePrefix("10.8.64.0/24")

// changeLines are the lines of [changelog.Follower], which are not written as
// calls with their words.
func changeLines() (calls []logCall) {
	keys := []string{"addr", "sandbox", "lease", "pool", "from", "reason", "actor", "peer", "rev"}
	for _, to := range ipam.States() {
		if to == ipam.Quarantined {
			continue
		}
		calls = append(calls, changeLine(ipam.Change{Subject: ipam.OfLease, Addr: ipam.FirstHost(anyPrefix), To: to}, keys))
	}
	calls = append(calls,
		changeLine(ipam.Change{Addr: ipam.FirstHost(anyPrefix), To: ipam.Free, From: ipam.Cooling}, keys),
		changeLine(ipam.Change{Addr: ipam.FirstHost(anyPrefix), To: ipam.Bound, From: ipam.Bound}, keys),
		changeLine(ipam.Change{Addr: ipam.FirstHost(anyPrefix), To: ipam.Quarantined},
			[]string{"addr", "lease", "pool", "from", "witness", "port", "container", "mac", "reason", "actor", "peer", "rev"}),
		changeLine(ipam.Change{Addr: ipam.FirstHost(anyPrefix), To: ipam.Bound, From: ipam.Bound, Who: ipam.Who{Reason: ipam.ConflictSeen}},
			slices.Insert(slices.Clone(keys), 5, "witness", "port", "container", "mac")),
		changeLine(ipam.Change{Addr: ipam.FirstHost(anyPrefix), To: ipam.Bound, From: ipam.Bound, Who: ipam.Who{Reason: ipam.ConflictOver}}, keys),
		changeLine(ipam.Change{Subject: ipam.OfPool}, []string{"pool", "reason", "actor", "peer", "rev"}),
		changeLine(ipam.Change{Subject: ipam.OfAttempt}, []string{"uid", "attempt", "reason", "actor", "peer", "rev"}),
		changeLine(ipam.Change{Subject: ipam.OfBook}, []string{"reason", "actor", "peer", "rev"}))
	return calls
}

func changeLine(c ipam.Change, keys []string) logCall {
	return logCall{level: "change", message: changelog.Message(c), keys: keys}
}

// Every line is on the page, with its level and its keys, and the keys are
// spelled the same everywhere.
func TestEveryLogLineIsDocumented(t *testing.T) {
	calls := changeLines()
	for _, room := range rooms(t) {
		calls = append(calls, logCalls(t, room)...)
	}
	if len(calls) < 40 {
		t.Fatalf("only %d lines were found: are they written another way now?", len(calls))
	}
	var want []string
	for _, c := range calls {
		for _, key := range c.keys {
			if right, wrong := notKeys[key]; wrong {
				t.Errorf("%s: the key %s is spelled %s", c.at, key, right)
			}
		}
		row := fmt.Sprintf("| %s | %s | %s |", c.level, c.message, strings.Join(c.keys, ", "))
		if !slices.Contains(want, row) {
			want = append(want, row)
		}
	}
	const page = "docs/METRICS.md"
	doctest.SameRows(t, page, doctest.Rows(t, page, "| level | line | keys |"), want)
}
