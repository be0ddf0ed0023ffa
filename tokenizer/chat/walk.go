package chat

// hasGeneration tells whether there is a generation tag among statements.
func hasGeneration(body []statement) bool {
	for _, s := range body {
		found := false
		switch s := s.(type) {
		case *generationNode:
			found = true
		case *ifNode:
			found = hasGeneration(s.body) || hasGeneration(s.otherwise)
		case *forNode:
			found = hasGeneration(s.body) || hasGeneration(s.otherwise)
		case *withNode:
			found = hasGeneration(s.body)
		case *macroNode:
			found = hasGeneration(s.body)
		case *setNode:
			found = hasGeneration(s.body)
		case *filterNode:
			found = hasGeneration(s.body)
		case *callNode:
			found = hasGeneration(s.caller.body)
		}
		if found {
			return true
		}
	}
	return false
}
