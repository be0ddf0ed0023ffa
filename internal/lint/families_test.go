package lint

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// diffusionFamilies are the architectures of diffusion transformers, by what names them in
// identifiers and strings.
var diffusionFamilies = map[string]*regexp.Regexp{
	"FLUX.1":         regexp.MustCompile(`(?i)flux([^2.-]|[.-][^2]|$)|kontext|schnell`),
	"FLUX.2":         regexp.MustCompile(`(?i)flux[.-]?2|klein`),
	"Kandinsky 5":    regexp.MustCompile(`(?i)kandinsky`),
	"Qwen-Image":     regexp.MustCompile(`(?i)qwen[ -]?image([^2]|$)`),
	"Qwen-Image 2.1": regexp.MustCompile(`(?i)qwen[ -]?image[ -]?2`),
	"Z-Image":        regexp.MustCompile(`(^|[^A-Za-z])[zZ]-?[iI]mage|[a-z]ZImage`),
}

// filesOfFamily is the number of files that a family may have: its transformer and that one's
// batches, and its pipelines.
const filesOfFamily = 3

// naming are files and folders that may name families as well, with the reason.
var naming = map[string]string{
	"internal/model/original/": "one table of the names of first releases, which are file formats; adapters of language models read it too",
	"internal/diffusion/vae/":  "autoencoders are architectures of their own, with a file each",
	"cmd/lorafuse/cli/":        "help texts",
	"train/config/":            "texts about its keys",
	"cmd/gpubench/":            "measures a model",
	"dev/":                     "measures models",
}

// contracts are values of the configuration, with names that other trainers gave them.
var contracts = regexp.MustCompile(`flux_shift|qwen_shift`)

// familyFiles finds families that more than most files name, and exceptions that none
// needs.
func (r *repo) familyFiles(most int, naming map[string]string) (findings []string) {
	found, used := map[string][]string{}, map[string]bool{}
	for _, f := range r.files {
		if f.test || f.generated || f.apart {
			continue
		}
		for family, pattern := range diffusionFamilies {
			if !f.names(pattern) {
				continue
			}
			exempt := false
			for p := range naming {
				if strings.HasPrefix(f.path, p) {
					exempt, used[p] = true, true
				}
			}
			if !exempt {
				found[family] = append(found[family], f.path)
			}
		}
	}
	for family, files := range found {
		if len(files) > most {
			findings = append(findings, fmt.Sprintf("%s is named by %d files, expected %d: %s", family, len(files), most, strings.Join(files, ", ")))
		}
	}
	for p := range naming {
		if !used[p] {
			findings = append(findings, p+": names no family, as the rule says it may")
		}
	}
	return findings
}

// names reports whether an identifier or a string of the file matches.
func (f *source) names(pattern *regexp.Regexp) (found bool) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			found = found || pattern.MatchString(n.Name)
		case *ast.BasicLit:
			found = found || pattern.MatchString(contracts.ReplaceAllString(n.Value, ""))
		}
		return !found
	})
	return found
}

func TestDiffusionFamilies(t *testing.T) { none(t, theRepo(t).familyFiles(filesOfFamily, naming)) }
