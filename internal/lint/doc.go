// Package lint tests the rules of this repository: which packages may import which, what
// every file and exported name must have, and that documents match the code and are
// written in plain English. It contains only tests.
//
//	go test ./internal/lint            # check
//	go test ./internal/lint -update    # regenerate the generated parts of docs/
package lint
