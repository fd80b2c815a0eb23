"""What a resource group is: its name, its place in a tree, its policy, whom it is for. Pure."""
