package cli

import "github.com/spf13/cobra"

func (a *app) generate() *cobra.Command { return &cobra.Command{Use: "generate"} }
func (a *app) eval() *cobra.Command     { return &cobra.Command{Use: "eval"} }
func (a *app) merge() *cobra.Command    { return &cobra.Command{Use: "merge"} }
func (a *app) diff() *cobra.Command     { return &cobra.Command{Use: "diff"} }
