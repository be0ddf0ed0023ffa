package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets this binary be the program where it is called lorafuse.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lorafuse": func() { os.Exit(Main()) }})
}

// TestScripts runs command lines as a user would.
func TestScripts(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("LM", root+"/"+goldens+"/lm")
			e.Setenv("TOKENIZERS", root+"/"+goldens+"/tokenizers")
			return nil
		},
		RequireExplicitExec: true,
	})
}
