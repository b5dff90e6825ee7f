package netdbtest

import (
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

//go:embed testdata/before-0.1.0.sql
var beforeRelease string

// BeforeRelease makes a closed book one of the last build before 0.1.0: the same rows, in the
// tables of then.
func BeforeRelease(t testing.TB, path string) {
	t.Helper()
	made := path + ".before"
	db, err := sql.Open("sqlite", "file:"+made)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // what is attached is one connection's
	exec := func(statement string, args ...any) {
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatalf("%.80s: %v", statement, err)
		}
	}
	exec(`PRAGMA journal_mode = WAL`)
	exec(beforeRelease)
	exec(`PRAGMA application_id = 1768972653; PRAGMA user_version = 1`)
	exec(`ATTACH ? AS now`, path)
	for _, table := range []string{"book", "pools", "leases", "changes", "tombstones"} {
		var columns string
		if err := db.QueryRow(`SELECT group_concat(name, ',') FROM main.pragma_table_info(?)`, table).Scan(&columns); err != nil {
			t.Fatal(err)
		}
		now := strings.NewReplacer("ip,key", "address,ip", "subject,ip", "subject,address").Replace(columns)
		exec(fmt.Sprintf(`INSERT INTO main.%[1]s (%[2]s) SELECT %[3]s FROM now.%[1]s`, table, columns, now))
	}
	exec(`DETACH now`)
	if err := errors.Join(db.Close(), os.Rename(made, path)); err != nil {
		t.Fatal(err)
	}
}
