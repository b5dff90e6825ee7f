// Package migrations is the lease book's schema: numbered SQL files, embedded.
//
// File NNNN_name.sql takes a book from schema NNNN-1 to NNNN. A file is never
// edited once released; netdb applies each in one transaction together with
// the new user_version, so that a crash leaves the old schema or the new one.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed *.sql
var files embed.FS

// A Migration takes the book to schema Version.
type Migration struct {
	Version int
	Name    string
	SQL     string
}

// All returns the migrations in order. It panics when a file's name does not
// start with its number or a number is missing: that is a broken build.
func All() []Migration {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err)
	}
	var out []Migration
	for i, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			panic(fmt.Sprintf("migration %s: want number %04d", e.Name(), i+1))
		}
		sql, err := files.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, Migration{version, e.Name(), string(sql)})
	}
	return out
}

// Latest is the schema that this build writes.
func Latest() int { return len(All()) }
