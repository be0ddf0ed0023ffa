// Package draws checks properties on fewer draws than package rapid does by default, so that tests of a change stay short.
package draws

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Check checks a property on n draws, or with LORAFUSE_LONG on the 100 of package rapid. The flag -rapid.checks takes
// precedence over both.
func Check(t *testing.T, n int, property func(*rapid.T)) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if was := checks.Value.String(); was == checks.DefValue && os.Getenv("LORAFUSE_LONG") == "" {
		if err := checks.Value.Set(strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = checks.Value.Set(was) }()
	}
	rapid.Check(t, property)
}
