package cli

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

// TestMain lets this binary be the program where it is called lorafuse.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lorafuse": func() { os.Exit(Main()) }})
}

// TestScripts runs command lines as a user would. The Hub of the scripts is a fake one, where the token hf_write may
// write to acme.
func TestScripts(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	h := testhub.New(t, map[string]*testhub.Repo{})
	h.Push = &testhub.Push{Tokens: map[string][]string{"hf_write": {"acme"}}}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("LM", root+"/"+goldens+"/lm")
			e.Setenv("TOKENIZERS", root+"/"+goldens+"/tokenizers")
			e.Setenv("HF_ENDPOINT", h.Server.URL)
			e.Setenv("HF_HOME", e.WorkDir+"/.hub")
			return nil
		},
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"ask": askServer},
		RequireExplicitExec: true,
	})
}

// askServer is the command `ask PATH FILE ARGS...` of scripts. It starts `lorafuse serve ARGS...`, whose paths must be
// absolute, posts the file to the path, prints the answer and stops the server.
func askServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: ask PATH FILE ARGS...")
	}
	r, err := openServe(args[2:]...)
	defer r.stop()
	ts.Check(err)
	a, err := r.client.Post(r.url+args[0], "application/json", strings.NewReader(ts.ReadFile(args[1])))
	ts.Check(err)
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s", args[0], a.Status)
	}
	_, err = io.Copy(ts.Stdout(), a.Body)
	ts.Check(err)
}
