package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// comparesBoots has the files that compare ids of boots by themselves, each with its reason. All
// others ask ipam.SameBoot, Stamp.Rebooted or Plug.OfBoot: an id of a book's stamp may be that of an
// era of the boot, and never equals the kernel's then.
var comparesBoots = map[string]string{
	"internal/elapsed/clock.go": "it has the kernel's alone, and arithmetic within one era",
	"netdb/identity.go":         "both are the kernel's: the boot that the book was last opened in, and this one",
	"netdb/sqlite/judge.go":     "both are the kernel's: the note beside a book is of the machine's clock",
	"internal/elapsed/stamp.go": "it has the one comparison, and arithmetic within one era",
	"netdb/check.go":            "a lease and the change that made it have the very same stamp",
	"workload/leases.go":        "it compares the times of one era",
	"doctor/wallclock.go":       "it compares the times of one era",
	"watchdog/lookup.go":        "both are the kernel's",
}

func TestBootsAreComparedInOnePlace(t *testing.T) {
	for path, p := range list(t) {
		room, our := ours(path)
		if !our {
			continue
		}
		for _, name := range p.GoFiles {
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				e, is := n.(*ast.BinaryExpr)
				if !is || e.Op != token.EQL && e.Op != token.NEQ || !bootID(e.X) && !bootID(e.Y) || empty(e.X) || empty(e.Y) {
					return true
				}
				file := room + "/" + name
				if comparesBoots[file] == "" {
					t.Errorf("%s: line %d compares ids of boots: ipam.SameBoot does", file, files.Position(e.Pos()).Line)
				}
				return true
			})
		}
	}
}

// bootID reports whether an expression is a field with the id of a boot.
func bootID(e ast.Expr) bool {
	s, is := e.(*ast.SelectorExpr)
	return is && (s.Sel.Name == "BootID" || s.Sel.Name == "Boot")
}

func empty(e ast.Expr) bool {
	l, is := e.(*ast.BasicLit)
	return is && l.Value == `""`
}
