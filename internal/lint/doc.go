// Package lint keeps the rules of the house as tests: which package may import
// which, what every file and every exported name must have, and that the
// documents say what the code does. It contains only tests.
//
//	go test ./internal/lint            # check
//	go test ./internal/lint -update    # write the generated parts of docs/ anew
package lint
