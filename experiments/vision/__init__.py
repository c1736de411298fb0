"""The paper's vision tasks: from pictures and public backbones to its rows."""
