package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ipamd/ipamd"

// A pack is what `go list` prints of a package.
type pack struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Standard   bool
}

// A house is every package of ours and all that they need, by import path.
// Tests are not in it: they may look anywhere.
type house map[string]pack

func list(t *testing.T) house {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,Standard", "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the programs are built
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages: %v", err)
	}
	h := make(house)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pack
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return h
		} else if err != nil {
			t.Fatal(err)
		}
		h[p.ImportPath] = p
	}
}

// ours returns the room's name of an import path: "netdb".
func ours(path string) (string, bool) {
	name, ok := strings.CutPrefix(path, module+"/")
	return name, ok
}

// under reports whether a path is, or lies below, one of the names; a room
// has to be named with "/..." for what is below it.
func under(path string, names []string) bool {
	if name, ok := ours(path); ok {
		return slices.ContainsFunc(names, func(n string) bool {
			above, all := strings.CutSuffix(n, "/...")
			return name == n || all && strings.HasPrefix(name, above+"/")
		})
	}
	return slices.ContainsFunc(names, func(n string) bool { return path == n || strings.HasPrefix(path, n+"/") })
}

// breaches returns a sentence for each line of the plan that is broken.
func (h house) breaches() (found []string) {
	for path, p := range h {
		name, our := ours(path)
		if !our {
			continue
		}
		i := slices.IndexFunc(rooms, func(r room) bool { return under(path, []string{r.path}) })
		if i < 0 {
			found = append(found, fmt.Sprintf("%s has no line in the plan", name))
			continue
		}
		for _, to := range p.Imports {
			if other, our := ours(to); our && !under(to, append(rooms[i].may, rooms[i].path)) {
				found = append(found, fmt.Sprintf("%s imports %s: %s", name, other, rooms[i].why))
			}
			for _, l := range restrictedLibraries {
				if under(to, []string{l.library}) && !under(path, l.only) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", name, to, l.why))
				}
			}
		}
	}
	for _, f := range forbiddenImports {
		for _, way := range h.ways(module + "/" + f.from) {
			to := way[len(way)-1]
			_, our := ours(to)
			if len(f.without) > 0 && under(to, f.without) || len(f.without) == 0 && !our && !h[to].Standard {
				found = append(found, fmt.Sprintf("%s pulls in %s: %s", f.from, strings.Join(way[1:], " → "), f.why))
			}
		}
	}
	slices.Sort(found)
	return found
}

// ways returns a shortest chain of imports to each package that from needs.
func (h house) ways(from string) (all [][]string) {
	seen := map[string]bool{from: true}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		way := queue[0]
		for _, to := range h[way[len(way)-1]].Imports {
			if !seen[to] {
				seen[to] = true
				next := append(slices.Clone(way), to)
				all, queue = append(all, next), append(queue, next)
			}
		}
	}
	return all
}

func TestThePlan(t *testing.T) {
	h := list(t)
	for _, b := range h.breaches() {
		t.Error(b)
	}
	for _, r := range rooms {
		if above, all := strings.CutSuffix(r.path, "/..."); !all && h[module+"/"+above].ImportPath == "" {
			t.Errorf("the plan has a room %s that the house has not", r.path)
		} else if !all {
			for _, may := range r.may {
				if !slices.Contains(h[module+"/"+r.path].Imports, module+"/"+may) {
					t.Errorf("the plan lets %s import %s, which it does not", r.path, may)
				}
			}
		}
	}
}

// TestBreachesAreFound breaks each kind of line in a house made for it.
func TestBreachesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		imports map[string]string // from a room: one import of it
		want    string
	}{
		"a room asks another":            {map[string]string{"census": module + "/netdb"}, "census imports netdb: "},
		"the book asks the wire":         {map[string]string{"netdb": module + "/census"}, "netdb imports census: "},
		"the bridge knows leases":        {map[string]string{"bridge": module + "/netdb"}, "bridge imports netdb: "},
		"a witness writes":               {map[string]string{"watchdog/ctrd": module + "/netdb"}, "watchdog/ctrd imports netdb: "},
		"the parent is not the child":    {map[string]string{"watchdog": module + "/watchdog/ctrd"}, "watchdog imports watchdog/ctrd: "},
		"the socket asks the kernel":     {map[string]string{"server": module + "/bridge"}, "server imports bridge: "},
		"an example looks inside":        {map[string]string{"examples/demo": module + "/netdb"}, "examples/demo imports netdb: "},
		"a room without a line":          {map[string]string{"attic": "fmt"}, "attic has no line in the plan"},
		"a room below one":               {map[string]string{"netdb/attic": "fmt"}, "netdb/attic has no line in the plan"},
		"a second writer":                {map[string]string{"reconciler": "modernc.org/sqlite"}, "reconciler imports modernc.org/sqlite: "},
		"a second writer, by the driver": {map[string]string{"cmd/ipamd": "database/sql"}, "cmd/ipamd imports database/sql: "},
		"containerd elsewhere":           {map[string]string{"allocator": "github.com/containerd/containerd/v2/client"}, "allocator imports github.com/containerd/containerd/v2/client: "},
		"netlink elsewhere":              {map[string]string{"watchdog": "github.com/vishvananda/netlink"}, "watchdog imports github.com/vishvananda/netlink: "},
		"a program is started":           {map[string]string{"bridge": "os/exec"}, "bridge imports os/exec: "},
		"a dependency of the wire types": {map[string]string{"api": "golang.org/x/net/http2"}, "api pulls in golang.org/x/net/http2: "},
		"one of the client, far away":    {map[string]string{"client": module + "/api", "api": "example.com/x"}, "client pulls in " + module + "/api → example.com/x: "},
		"SQLite in the tool, far away": {map[string]string{"cmd/ipamctl": module + "/client", "client": module + "/netdb", "netdb": "modernc.org/sqlite"},
			"cmd/ipamctl pulls in " + module + "/client → " + module + "/netdb → modernc.org/sqlite: "},
		"test helpers in the daemon": {map[string]string{"cmd/ipamd": module + "/server", "server": module + "/netdb/netdbtest"},
			"cmd/ipamd pulls in " + module + "/server → " + module + "/netdb/netdbtest: "},
	} {
		t.Run(name, func(t *testing.T) {
			h := make(house)
			for from, to := range c.imports {
				h[module+"/"+from] = pack{ImportPath: module + "/" + from, Imports: []string{to}}
			}
			if found := h.breaches(); !slices.ContainsFunc(found, func(b string) bool { return strings.HasPrefix(b, c.want) }) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// TestNothingRegistersItself: an init function runs in any program that imports a
// package, wanted or not.
func TestNothingRegistersItself(t *testing.T) {
	for path, p := range list(t) {
		if _, our := ours(path); !our {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if registers(f) {
				t.Errorf("%s of %s has an init function", name, path)
			}
		}
	}
}

func registers(f *ast.File) bool {
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == "init"
	})
}

func TestInitIsFound(t *testing.T) {
	for source, want := range map[string]bool{
		"package p\nfunc init() {}":          true,
		"package p\nfunc (t T) init() {}":    false,
		"package p\nfunc initialise() {}":    false,
		"package p\nvar x = func() { /**/ }": false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if registers(f) != want {
			t.Errorf("%q: %v", source, !want)
		}
	}
}
